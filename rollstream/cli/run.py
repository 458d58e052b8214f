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
from rollstream.cli.results import show_agents, too_incomplete
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


ROWS, REQUEST, RESULTS, MODEL = "Rows", "Requests", "Results", "Model"


def run(  # noqa: PLR0917 - the flags of a command
    parameters: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="responses_create_params.KEY=VALUE",
            help="Request parameters that win over those of the rows; null is a value.",
            rich_help_panel=REQUEST,
            show_default=False,
        ),
    ] = None,
    environment: Annotated[
        list[str] | None,
        typer.Option("--environment", "-e", metavar="NAME", help="Its example tasks; may be repeated.", rich_help_panel=ROWS),
    ] = None,
    input_file: Annotated[
        Path | None,
        typer.Option("--input", "-i", metavar="FILE", help="JSONL rows instead of example tasks.", rich_help_panel=ROWS),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option("--agent", "-a", metavar="NAME", help="For rows that name no agent.", rich_help_panel=ROWS),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", metavar="N", min=0, help="Tasks of each source; 0: all.", show_default=False, rich_help_panel=ROWS
        ),
    ] = 0,
    repeats: Annotated[
        list[str] | None,
        typer.Option(
            "--repeats",
            "-n",
            metavar="N|AGENT=N",
            help="Rollouts of each task; by agent when repeated, _default=N for the others.",
            rich_help_panel=ROWS,
        ),
    ] = None,
    seeds: Annotated[
        bool, typer.Option("--seeds", help="Each rollout's index as its seed (extra_body).", rich_help_panel=ROWS)
    ] = False,
    prompt_config: Annotated[
        Path | None,
        typer.Option("--prompt-config", metavar="FILE", help="YAML: prompts made from the rows' fields.", rich_help_panel=ROWS),
    ] = None,
    skills: Annotated[
        Path | None,
        typer.Option("--skills", metavar="DIR", help="Skills that the rows are to name, with a hash.", rich_help_panel=ROWS),
    ] = None,
    search_dir: Annotated[
        list[Path] | None,
        typer.Option("--search-dir", metavar="DIR", help="Where such files are looked for first.", rich_help_panel=ROWS),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Run nothing when one row is bad.", rich_help_panel=ROWS)] = False,
    temperature: Annotated[float | None, typer.Option("--temperature", metavar="X", min=0, rich_help_panel=REQUEST)] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", metavar="P", min=0, max=1, rich_help_panel=REQUEST)] = None,
    max_output_tokens: Annotated[
        int | None, typer.Option("--max-output-tokens", metavar="N", min=1, rich_help_panel=REQUEST)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="URL/NAME",
            help="http://host:8000/v1/my-model, or scripted (no model at all).",
            rich_help_panel=MODEL,
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", "-c", metavar="N", min=1, help="Rollouts at the model at a time.", rich_help_panel=MODEL),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR/STEM.jsonl",
            help="The results file; the others stand beside it. Begun anew unless --resume.",
            rich_help_panel=RESULTS,
        ),
    ] = Path("results/rollouts.jsonl"),
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the run in --output, from its stored rows.", rich_help_panel=RESULTS),
    ] = False,
    allow_changes: Annotated[
        bool,
        typer.Option("--allow-changes", help="Resume although model or arguments are others now.", rich_help_panel=RESULTS),
    ] = False,
    aggregate: Annotated[
        bool,
        typer.Option("--aggregate/--no-aggregate", help="Compute metrics at the end.", rich_help_panel=RESULTS),
    ] = True,
    min_completeness: Annotated[
        float,
        typer.Option(
            "--min-completeness",
            metavar="PERCENT",
            min=0,
            max=100,
            help="Exit code 1 when fewer rollouts have a result.",
            show_default=False,
            rich_help_panel=RESULTS,
        ),
    ] = 0.0,
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
    if output.is_dir():
        raise UsageError(f"--output {output} is a directory; name the results file in it, such as {output / 'rollouts.jsonl'}")
    if min_completeness and not aggregate:
        raise UsageError("--min-completeness is read from the metrics; leave --no-aggregate out")
    with EarlySignals.kept() as early:
        from rollstream.runner.plan import RunRequest

        named = {"temperature": temperature, "top_p": top_p, "max_output_tokens": max_output_tokens}
        request = RunRequest(
            output,
            tuple(environment or ()),
            input_file,
            **_repeats_and_overrides(repeats, parameters, named),
            limit=limit,
            resume=resume,
            strict=strict,
            agent=agent,
            add_seed=seeds,
            prompt_config=prompt_config,
            skills=skills,
            search_folders=tuple(search_dir or ()),
            allow_changes=allow_changes,
            aggregate=aggregate,
        )
        _check_source(request)
        settings = _settings(bootstrap_servers, prefix, config, assignments, model, concurrency)
        report = _run(request, settings, early)
    _show(report, settings)
    short = too_incomplete(report.aggregated, min_completeness)
    if short and not report.stopped:
        fail(short, CANNOT)
    raise typer.Exit(_exit_code(report))


def _check_source(request: RunRequest) -> None:
    """One source, or none where a resume has its own."""
    if request.resume and not request.has_source:
        return
    several = bool(request.environments) and request.input is not None and len(request.environments) > 1
    if several or not request.has_source:
        raise UsageError("name what to run: --environment NAME (repeatable) or --input FILE (with one --environment at most)")


def _repeats_and_overrides(
    repeats: list[str] | None, parameters: list[str] | None, named: dict[str, float | None]
) -> dict[str, Any]:
    from rollstream.runfiles.overrides import read_overrides, read_repeats
    from rollstream.runfiles.problems import PlanError

    given = [f"responses_create_params.{key}={value!r}" for key, value in named.items() if value is not None]
    for parameter in parameters or ():
        if not parameter.lstrip("+").startswith("responses_create_params."):
            raise UsageError(f"{parameter}: write responses_create_params.KEY=VALUE; a setting goes with --set {parameter}")
    try:
        return {"overrides": read_overrides([*given, *(parameters or ())]), "repeats": read_repeats(repeats or ())}
    except PlanError as e:
        raise UsageError(str(e)) from e


def _run(request: RunRequest, settings: Settings, early: EarlySignals) -> Report:
    import uvloop
    from rich.console import Console

    from rollstream.runner.display import Display
    from rollstream.runner.prepare import RunError
    from rollstream.runner.run import RunStopped, run

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

    from rollstream.runfiles.problems import refused_by_agent, summarised
    from rollstream.text import printable

    console = Console(highlight=False)
    problems = summarised(report.problems)
    for problem in problems[:_SHOWN]:
        say(problem)
    if len(problems) > _SHOWN:
        say(f"… and {len(problems) - _SHOWN:,} more; all refused rows are in {report.paths.failures}")
    if report.aggregated.agents:
        show_agents(report.aggregated, refused_by_agent(report.problems))
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
