"""`rollstream status`: the ledger, the lag of each stage, the oldest rollout in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rollstream.cli.common import (
    OK,
    SOME_FAILED,
    AsJson,
    BootstrapServers,
    ConfigFile,
    Prefix,
    Set,
    add,
    connection_of,
    load_settings,
    run_async,
    say,
    topics_of,
)

if TYPE_CHECKING:
    from rich.table import Table

    from rollstream.ledger import Ledger, StageLag
    from rollstream.settings import Settings
    from services.runtime.control import ControlEntry


def register(app: typer.Typer) -> None:
    add(app, status, "Rollouts")


def status(
    run: Annotated[str | None, typer.Option("--run", metavar="ID", help="Only this run; without it, all runs.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit code 3 when a rollout ended without a score, or the ledger does not balance.")
    ] = False,
    as_json: AsJson = False,
    bootstrap_servers: BootstrapServers = None,
    prefix: Prefix = None,
    config: ConfigFile = None,
    assignments: Set = None,
) -> None:
    """How a run stands: dispatched = scored + failed + cancelled + expired + in flight, and what waits at each stage.

    Computed from the topics, so it is right while workers run, when none do, and for prompts that came by other tools.
    """
    settings = load_settings(bootstrap_servers, prefix, config, assignments).settings
    ledger, lags, said = run_async(_ask(settings, run))
    if as_json:
        _print_json(ledger, lags, said)
    else:
        from rich.console import Console

        console = Console(markup=False, highlight=False, emoji=False)
        console.print(ledger.as_table(), soft_wrap=True)
        console.print(_lag_table(lags), soft_wrap=True)
        for line in _control_lines(said):
            console.print(line, soft_wrap=True)
    if run and not ledger.total.dispatched:
        from rollstream.text import printable

        say(f"no prompt of run {printable(run)} is in the topics of prefix {settings.topics.prefix!r}: check both")
    bad = not ledger.balanced or ledger.total.ended > ledger.total.scored
    raise typer.Exit(SOME_FAILED if check and bad else OK)


async def _ask(settings: Settings, run: str | None) -> tuple[Ledger, list[StageLag], dict[str, ControlEntry]]:
    from rollstream.control import read_control
    from rollstream.ledger import read_ledger, stage_lag
    from rollstream.settings import DeliveryMode

    connection, topics = connection_of(settings), topics_of(settings)
    lenient = settings.delivery is DeliveryMode.AT_LEAST_ONCE
    ledger = await read_ledger(connection, topics, run=run, at_least_once=lenient)
    lags = await stage_lag(connection, topics, scope=run or "")
    said = {
        name: entry for name, entry in (await read_control(connection, topics)).items() if run is None or name in (run, "*")
    }
    return ledger, lags, said


def _control_lines(said: dict[str, ControlEntry]) -> list[str]:
    """What was said about the runs, as far as it is out of the ordinary."""
    from rollstream.text import printable

    lines = []
    for name, entry in sorted(said.items()):
        version = f"policy version {entry.policy_version}" if entry.policy_version else ""
        state = entry.state if entry.state != "running" else None
        if state or version:
            who = "all runs" if name == "*" else f"run {name}"
            lines.append(printable(f"control: {who}: {', '.join(filter(None, (state, version)))}"))
    return lines


def _print_json(ledger: Ledger, lags: list[StageLag], said: dict[str, ControlEntry]) -> None:
    import dataclasses

    from schemas import jsontext

    control = {name: entry.model_dump(exclude_none=True) for name, entry in said.items()}
    lag = [dataclasses.asdict(stage) for stage in lags]
    typer.echo(jsontext.dumps({"ledger": ledger.as_dict(), "lag": lag, "control": control}))


def _lag_table(lags: list[StageLag]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from rollstream.text import printable

    table = Table()
    for name in ("stage", "topic", "group"):
        table.add_column(name, overflow="fold")
    table.add_column("lag", justify="right")
    for lag in lags:
        group = printable(lag.group) + ("" if lag.started else " (never committed)")
        table.add_row(lag.stage, Text(printable(lag.topic)), Text(group), f"{lag.lag:,}")
    return table
