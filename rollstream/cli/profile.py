"""`rollstream profile`: how hard each task was, for choosing the next training set."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from rollstream.cli.common import CANNOT, UsageError, add, fail, say


def register(app: typer.Typer) -> None:
    add(app, profile, "Results")


def profile(
    rollouts: Annotated[Path, typer.Option("--rollouts", "-r", metavar="DIR/STEM.jsonl", help="The results file of a run.")],
    inputs: Annotated[
        Path | None,
        typer.Option("--inputs", "-i", metavar="FILE", help="Its materialized rows; by default those beside the results."),
    ] = None,
    allow_partial: Annotated[
        bool, typer.Option("--allow-partial-rollouts", help="Rollouts without a result are left out, not an error.")
    ] = False,
) -> None:
    """Mean, spread and rollouts of each task, beside its row: STEM_reward_profiling.jsonl and STEM_agent_metrics.json.

    Pick tasks by difficulty (mean/reward) and by spread (std/reward) for the next training set. Tasks without any result
    have no line.
    """
    from rollstream.runfiles import profile as profiling
    from rollstream.runfiles.readers import MalformedLineError
    from services.sink.paths import RunPaths

    paths = RunPaths.of(rollouts)
    try:
        found = profiling.profile(inputs or paths.materialized, paths.results, allow_partial=allow_partial)
    except profiling.ProfileError as e:
        raise UsageError(str(e)) from e
    except MalformedLineError as e:
        fail(str(e), CANNOT)
    profiling.write_profile(found, paths)
    for torn in found.torn:
        say(str(torn))
    for name, value in dataclasses.asdict(found.summary).items():
        typer.echo(f"{name:<30} {value:g}" if isinstance(value, float) else f"{name:<30} {value}")
    typer.echo(f"{'profile':<30} {paths.reward_profile}")
    typer.echo(f"{'metrics':<30} {paths.agent_metrics}")
