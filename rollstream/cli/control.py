"""`rollstream control cancel|pause|resume|policy-version`: what operators and trainers say to all workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rollstream.cli.common import (
    BootstrapServers,
    ConfigFile,
    Prefix,
    Set,
    UsageError,
    add,
    connection_of,
    flowing,
    load_settings,
    run_async,
    say,
    topics_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from services.runtime.control import ControlEntry, State

HELP = """Cancel, pause or resume a run, or say which version the policy has.

RUN is a run's id, or '*' (quoted) for all runs. What is said stays said, for workers that start later too, and a run's own
word counts more than that for all runs.
"""

app = typer.Typer(help=flowing(HELP), no_args_is_help=True, rich_markup_mode=None)

Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or '*' for all runs.", show_default=False)]


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="control", rich_help_panel="Rollouts")


def cancel(
    run: Run,
    bootstrap_servers: BootstrapServers = None,
    prefix: Prefix = None,
    config: ConfigFile = None,
    assignments: Set = None,
) -> None:
    """End a run's rollouts. Each ends, at its next step, as cancelled; calls under way are not cut off."""
    _say(run, bootstrap_servers, prefix, config, assignments, state="cancelled")
    say(f"{_named(run)} cancelled: every rollout in flight ends as cancelled at its next step")


def pause(
    run: Run,
    bootstrap_servers: BootstrapServers = None,
    prefix: Prefix = None,
    config: ConfigFile = None,
    assignments: Set = None,
) -> None:
    """Take up no further prompts; rollouts in flight go on to their end.

    A single run can be paused when its workers are its own (`rollstream run`). Workers that are shared by many runs pause
    for all of them ('*').
    """
    _say(run, bootstrap_servers, prefix, config, assignments, state="paused")
    say(f"{_named(run)} paused: no further prompts are taken up, rollouts in flight go on")
    if run != "*":
        say("this holds for the run's own workers (rollstream run); shared workers pause for all runs only: control pause '*'")


def resume(
    run: Run,
    bootstrap_servers: BootstrapServers = None,
    prefix: Prefix = None,
    config: ConfigFile = None,
    assignments: Set = None,
) -> None:
    """Take up prompts again. Rollouts that ended as cancelled stay so."""
    _say(run, bootstrap_servers, prefix, config, assignments, state="running")
    say(f"{_named(run)} running: prompts are taken up")


def policy_version(
    run: Run,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="A name for the policy's weights.", show_default=False)],
    bootstrap_servers: BootstrapServers = None,
    prefix: Prefix = None,
    config: ConfigFile = None,
    assignments: Set = None,
) -> None:
    """Say which version of the policy is served now."""
    _say(run, bootstrap_servers, prefix, config, assignments, version=version)
    say(f"{_named(run)} at policy version {version}")


for _function, _name in ((cancel, "cancel"), (pause, "pause"), (resume, "resume"), (policy_version, "policy-version")):
    add(app, _function, name=_name)


def _say(
    run: str,
    bootstrap_servers: str | None,
    prefix: str | None,
    config: Path | None,
    assignments: list[str] | None,
    *,
    state: State | None = None,
    version: str | None = None,
) -> ControlEntry:
    """Write the entry and wait until it is acknowledged."""
    from rollstream.control import set_control
    from schemas.errors import DataError

    settings = load_settings(bootstrap_servers, prefix, config, assignments).settings
    saying = set_control(connection_of(settings), topics_of(settings), run=run, state=state, policy_version=version)
    try:
        return run_async(saying)
    except DataError as e:
        raise UsageError(str(e)) from e


def _named(run: str) -> str:
    return "all runs are" if run == "*" else f"run {run} is"
