"""`rollstream aggregate`: results files of shards merged, and the metrics of all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rollstream.cli.common import CANNOT, UsageError, add, fail, say


def register(app: typer.Typer) -> None:
    add(app, aggregate, "Results")


def aggregate(
    patterns: Annotated[
        list[str],
        typer.Argument(
            metavar="GLOB...", help="Results files, such as 'out/shard-*.jsonl'; several by comma.", show_default=False
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR/STEM.jsonl", help="The merged results file.")],
    merge: Annotated[bool, typer.Option("--merge/--no-merge", help="Write the merged file, or its metrics alone.")] = True,
    min_completeness: Annotated[
        float,
        typer.Option("--min-completeness", metavar="PERCENT", min=0, max=100, help="Fail when fewer rollouts have a result."),
    ] = 0.0,
) -> None:
    """Results of several machines as one run: merged in order, with the metrics of one run.

    Shards are the files of `rollstream run`, or of the reference, over parts of a dataset whose rows have a _ng_task_index.
    Inputs and failures that lie beside a shard count in the denominators. A rollout that occurs twice counts once.
    """
    from environments.registry import Registry
    from rollstream.cli.results import show_agents, too_incomplete
    from rollstream.runfiles.aggregate import write_aggregate
    from rollstream.runfiles.readers import MalformedLineError
    from rollstream.runfiles.shards import ShardError, find_shards, merge_shards
    from services.sink.paths import RunPaths

    paths = RunPaths.of(output)
    try:
        shards = find_shards(patterns, output)
        merged = merge_shards(shards, paths.results if merge else None)
        found = write_aggregate(paths, Registry.load(), [RunPaths(path) for path in shards])
    except ShardError as e:
        raise UsageError(str(e)) from e
    except MalformedLineError as e:
        fail(str(e), CANNOT)
    for note in (*map(str, merged.torn), *merged.repeated):
        say(note)
    typer.echo(f"{merged.rollouts:,} rollouts of {len(shards):,} files")
    show_agents(found)
    for label, path in (("results", paths.results if merge else None), ("metrics", paths.aggregate)):
        if path is not None and path.exists():
            typer.echo(f"{label:<10} {path}")
    short = too_incomplete(found, min_completeness)
    if short:
        fail(short, CANNOT)
