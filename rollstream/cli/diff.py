"""`rollstream diff`: two scorings of the same rollouts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollstream.cli.common import (
    AsJson,
    BootstrapServers,
    ConfigFile,
    Prefix,
    Set,
    UsageError,
    add,
    connection_of,
    load_settings,
    run_async,
    say,
    topics_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rollstream.diffing.compare import Change, Comparison, Totals
    from rollstream.diffing.scoring import Scoring
    from rollstream.settings import Settings

_LIVE, _SCORING = "live", "scoring:"
_SHOWN = 10
_ALWAYS = frozenset({"compared", "same", "up", "down"})
_TEXT = 40
"""Characters of a verdict's value that are shown."""

Which = Annotated[str, typer.Argument(metavar="FILE|DIR|live|scoring:ID", show_default=False)]


def register(app: typer.Typer) -> None:
    add(app, diff, "Rollouts")


def diff(  # noqa: PLR0917 - the flags of a command
    first: Which,
    second: Which,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.jsonl", help="Every rollout that differs, a line each.")
    ] = None,
    run: Annotated[str | None, typer.Option("--run", metavar="ID", help="From the log: only this run.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Changed rollouts that are shown.")] = 20,
    as_json: AsJson = False,
    bootstrap_servers: BootstrapServers = None,
    prefix: Prefix = None,
    config: ConfigFile = None,
    assignments: Set = None,
) -> None:
    """What changed from one scoring to another: rewards, their direction, verdicts; by environment and rollout.

    A scoring is a results file (its failures are read too), a directory of them, `live` (what the pipeline scored) or
    `scoring:ID` (what `rollstream reverify --log` made). Rollouts are matched by run, task and index; those that only one of
    the two holds are counted apart.

      rollstream diff results/rollouts.jsonl results/again.jsonl -o changes.jsonl

      rollstream diff live scoring:stricter --run night-7
    """
    settings = load_settings(bootstrap_servers, prefix, config, assignments).settings
    found = run_async(_both((first, second), settings, run or ""))
    from rollstream.diffing.compare import Comparison

    comparison = Comparison(*found)
    for scoring in found:
        _complain(scoring)
    totals = comparison.totals()
    if not totals:
        raise UsageError(f"neither {first} nor {second} holds a rollout")
    if output is not None:
        _write(output, comparison)
    if as_json:
        _show_json(comparison, totals)
    else:
        _show(comparison, totals, limit)


async def _both(names: tuple[str, str], settings: Settings, run: str) -> list[Scoring]:
    from environments.registry import Registry

    variants = {b.agent.name: v for e in Registry.load().entries for v, b in e.manifest.variants.items()}
    return [await _read(name, settings, run, variants) for name in names]


async def _read(name: str, settings: Settings, run: str, variants: Mapping[str, str]) -> Scoring:
    from rollstream.diffing.log import read_log
    from rollstream.diffing.scoring import Scoring, read_files
    from rollstream.reverify.guard import ReverifyError
    from rollstream.reverify.scoring_topics import scoring_topics
    from rollstream.runner.assembly import claims_of

    found = Scoring(name, variants)
    if name != _LIVE and not name.startswith(_SCORING):
        return read_files(found, Path(name))
    topics = topics_of(settings)
    try:
        named = topics if name == _LIVE else scoring_topics(topics, name.removeprefix(_SCORING))
    except ReverifyError as e:
        raise UsageError(str(e)) from e
    claims = claims_of(settings)
    try:
        return await read_log(found, connection_of(settings), named, claims, run)
    finally:
        claims.close()


def _complain(scoring: Scoring) -> None:
    for torn in scoring.torn:
        say(f"note: {torn}")
    for problem in scoring.problems[:_SHOWN]:
        say(str(problem))
    if len(scoring.problems) > _SHOWN:
        say(f"and {len(scoring.problems) - _SHOWN:,} more lines of {scoring.name} that cannot be used")


def _write(output: Path, comparison: Comparison) -> None:
    from schemas import jsontext

    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("wb") as file:
        file.writelines(jsontext.dumps(change.as_json()) + b"\n" for change in comparison.changes())


def _show_json(comparison: Comparison, totals: Mapping[str, Totals]) -> None:
    from schemas import jsontext

    who = [{"name": s.name, "verifiers": sorted(s.verifiers)} for s in (comparison.first, comparison.second)]
    environments = {name: t.as_json() for name, t in totals.items()}
    problems = [str(p) for s in (comparison.first, comparison.second) for p in s.problems]
    typer.echo(jsontext.dumps({"scorings": who, "environments": environments, "problems": problems}).decode())


def _show(comparison: Comparison, totals: Mapping[str, Totals], limit: int) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    for label, scoring in (("first", comparison.first), ("second", comparison.second)):
        by = f", by {', '.join(sorted(scoring.verifiers))}" if scoring.verifiers else ""
        typer.echo(f"{label:<7} {scoring.name}{by}")
    console.print(_totals_table(totals))
    changes = _largest(comparison, limit)
    if changes:
        console.print(_changes_table(changes))


def _largest(comparison: Comparison, limit: int) -> list[Change]:
    """The changes to show: losses and recoveries first, then by how far the reward moved."""
    import heapq

    def size(change: Change) -> float:
        return float("inf") if change.delta is None else abs(change.delta)

    return heapq.nlargest(limit, comparison.changes(), key=size)


def _totals_table(totals: Mapping[str, Totals]) -> Any:
    """A row an environment; kinds of which there is none take no column."""
    from rollstream.diffing.compare import Direction

    counts = {
        name: {"compared": t.compared, **{str(d): t.directions[d] for d in Direction}}
        | {"only first": t.only_first, "only second": t.only_second}
        for name, t in totals.items()
    }
    kinds = [k for k in next(iter(counts.values())) if k in _ALWAYS or any(c[k] for c in counts.values())]
    table = _table("environment", *kinds, "mean")
    for name, t in totals.items():
        n = t.rewarded
        mean = f"{t.before / n:.3f} → {t.after / n:.3f}" if n else "-"
        table.add_row(*_texts(name, *(f"{counts[name][k]:,}" for k in kinds), mean))
    return table


def _changes_table(changes: list[Change]) -> Any:
    table = _table("environment", "rollout", "reward", "direction", "verdict")
    for change in changes:
        who = change.rollout
        name = f"{who.run}/{who.task}-{who.rollout}" if who.run else f"{who.task}-{who.rollout}"
        verdict = ", ".join(f"{k}: {_short(a)} → {_short(b)}" for k, (a, b) in change.verdict.items())
        rewards = f"{_reward(change.before)} → {_reward(change.after)}"
        table.add_row(*_texts(change.after.environment, name, rewards, str(change.direction), verdict))
    return table


def _reward(entry: Any) -> str:
    return str(entry.failure) if entry.reward is None else f"{entry.reward:g}"


def _short(value: Any) -> str:
    from rollstream.text import printable

    return printable(str(value), _TEXT)


def _table(*columns: str) -> Any:
    from rich.table import Table

    table = Table()
    for name in columns:
        table.add_column(name, justify="left" if name in ("environment", "rollout", "direction", "verdict") else "right")
    return table


def _texts(*values: str) -> list[Any]:
    from rich.text import Text

    from rollstream.text import printable

    return [Text(printable(value)) for value in values]
