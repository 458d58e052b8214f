"""`rollstream run`: the whole pipeline in one process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollstream.cli.common import (
    CANNOT,
    OK,
    SOME_FAILED,
    STOPPED,
    BootstrapServers,
    ConfigFile,
    Prefix,
    Set,
    UsageError,
    add,
    fail,
    load_settings,
    quiet_logs,
    say,
)
from rollstream.runner.early import EarlySignals

if TYPE_CHECKING:
    from rollstream.runner.plan import RunRequest
    from rollstream.runner.run import Report
    from rollstream.settings import Settings

_LOCAL_PARTITIONS = 2
"""On a broker of one node in the same machine, more partitions make smaller batches and nothing else."""

_SHOWN = 10


def register(app: typer.Typer) -> None:
    add(app, run, "Rollouts")


def run(  # noqa: PLR0917 - the flags of a command
    environment: Annotated[
        list[str] | None, typer.Option("--environment", "-e", metavar="NAME", help="Its example tasks; may be repeated.")
    ] = None,
    input_file: Annotated[
        Path | None, typer.Option("--input", "-i", metavar="FILE", help="JSONL rows instead of example tasks.")
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR/STEM.jsonl",
            help="The results file; the others stand beside it. Begun anew unless --resume.",
        ),
    ] = Path("results/rollouts.jsonl"),
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="URL/NAME", help="http://host:8000/v1/my-model, or scripted (no model at all)."),
    ] = None,
    repeats: Annotated[int, typer.Option("--repeats", "-n", min=1, help="Rollouts of each task.")] = 1,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Tasks of each source; 0: all.")] = 0,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", "-c", min=1, help="Rollouts at the model at a time.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --output.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Run nothing when one row is bad.")] = False,
    bootstrap_servers: BootstrapServers = None,
    prefix: Prefix = None,
    config: ConfigFile = None,
    assignments: Set = None,
) -> None:
    """Rollouts from start to score, all in this process.

    Without --bootstrap-servers a Kafka of our own starts on loopback ports and keeps its data, so the run can be replayed.
    Ctrl-C once begins no further turns and lets calls under way finish; twice stops now. Either way nothing is lost, and the
    same command with --resume goes on.

    Exit code 0 when every rollout was scored, 3 when some failed, 130 when the run was stopped.
    """
    if bool(environment) == bool(input_file) and not (environment and input_file and len(environment) == 1):
        raise UsageError("name what to run: --environment NAME (repeatable) or --input FILE (with one --environment at most)")
    if output.is_dir():
        raise UsageError(f"--output {output} is a directory; name the results file in it, such as {output / 'rollouts.jsonl'}")
    with EarlySignals.kept() as early:
        from rollstream.runner.plan import RunRequest

        settings = _settings(bootstrap_servers, prefix, config, assignments, model, concurrency)
        report = _run(RunRequest(output, tuple(environment or ()), input_file, repeats, limit, resume, strict), settings, early)
    _show(report, settings)
    raise typer.Exit(_exit_code(report))


def _run(request: RunRequest, settings: Settings, early: EarlySignals) -> Report:
    import uvloop
    from rich.console import Console

    from rollstream.runner.display import Display
    from rollstream.runner.run import RunError, RunStopped, run

    quiet_logs()
    try:
        return uvloop.run(run(request, settings, Display(Console(stderr=True, highlight=False)), early))
    except RunError as e:
        raise UsageError(str(e)) from e
    except RunStopped as e:
        fail(str(e), STOPPED)


def _settings(
    bootstrap: str | None,
    prefix: str | None,
    config: Path | None,
    assignments: list[str] | None,
    model: str | None,
    concurrency: int | None,
) -> Settings:
    from rollstream.settings.model import TopicNames

    flags: dict[str, Any] = {}
    if model is not None:
        flags |= _model(model)
    if concurrency is not None:
        flags |= {"agent__in_flight": concurrency, "model__concurrency": concurrency}
    settings = load_settings(bootstrap, prefix, config, assignments, **flags).settings
    if settings.kafka.bootstrap_servers is None and "partitions" not in settings.topics.model_fields_set:
        # Still nobody's choice: topics that exist are taken with the partitions they have.
        few = {**dict(settings.topics), "partitions": _LOCAL_PARTITIONS}
        topics = TopicNames.model_construct(_fields_set=set(settings.topics.model_fields_set), **few)
        settings = settings.model_copy(update={"topics": topics})
    return settings


def _model(text: str) -> dict[str, Any]:
    from services.models.endpoint import ModelEndpoint

    if text == "scripted":
        return {"model__url": text, "model__name": text}
    try:
        endpoint = ModelEndpoint.parse(text)
    except ValueError as e:
        raise UsageError(f"--model {text}: {e}") from e
    return {"model__url": endpoint.base_url, "model__name": endpoint.name}


def _show(report: Report, settings: Settings) -> None:
    from rich.console import Console

    from environments.registry import Registry
    from rollstream.runner.display import results_table
    from rollstream.text import printable

    console = Console(highlight=False)
    for problem in report.problems[:_SHOWN]:
        say(str(problem))
    if len(report.problems) > _SHOWN:
        say(f"… and {len(report.problems) - _SHOWN:,} more rows refused; all are in {report.paths.failures}")
    names = {v.agent.name: e.manifest.name for e in Registry.load().entries for v in e.manifest.variants.values()}
    console.print(results_table(report.aggregated.agents, names))
    if settings.model.url == "scripted":
        console.print("The policy was a script, not a model: its rewards say nothing about any policy.")
    for reason, count in report.reasons:
        console.print(f"{count:,} × {printable(reason)}", markup=False, soft_wrap=True)
    for line in (report.ledger.equation(), *report.ledger.complaints()):
        console.print(f"ledger: {line}", markup=False, soft_wrap=True)
    for label, path in _files(report):
        console.print(f"{label:<10} {path}", markup=False, soft_wrap=True)
    if report.error is not None:
        say(f"stopped: {report.error}")
    if report.stopped:
        say("not finished: the same command with --resume goes on")


def _files(report: Report) -> list[tuple[str, Path]]:
    paths = report.paths
    named = [("results", paths.results), ("failures", paths.failures), ("inputs", paths.materialized)]
    named += [("metrics", paths.aggregate), ("run", paths.run)]
    return [(label, path) for label, path in named if path.exists()]


def _exit_code(report: Report) -> int:
    if report.error is not None:
        return CANNOT
    if report.stopped:
        return STOPPED
    return OK if report.ledger.all_scored and not report.problems else SOME_FAILED
