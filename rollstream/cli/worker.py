"""`rollstream worker`: one stage, one process."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollstream.cli.common import BootstrapServers, ConfigFile, Prefix, Set, UsageError, add, load_settings
from rollstream.cli.run import _model

if TYPE_CHECKING:
    from rollstream.settings import Settings


class StageName(StrEnum):
    """The stages that can be started."""

    AGENT = "agent"
    TOOL = "tool"
    VERIFIER = "verifier"
    SINK = "sink"


def register(app: typer.Typer) -> None:
    add(app, worker, "Workers")


def worker(  # noqa: PLR0917 - the flags of a command
    stage: Annotated[StageName, typer.Argument(metavar="agent|tool|verifier|sink", show_default=False)],
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="DIR/|FILE", help="Sink: a directory or URL (for many replicas), or one file."),
    ] = None,
    run: Annotated[str | None, typer.Option("--run", metavar="ID", help="Sink: the run that goes into one file.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="URL/NAME", help="Agent: the policy's endpoint.")
    ] = None,
    instance: Annotated[
        str | None,
        typer.Option("--instance", metavar="NAME", help="A stable name of this replica: a quick restart moves no partition."),
    ] = None,
    health_port: Annotated[int | None, typer.Option("--health-port", min=0, max=65535, help="0: any free port.")] = None,
    bootstrap_servers: BootstrapServers = None,
    prefix: Prefix = None,
    config: ConfigFile = None,
    assignments: Set = None,
) -> None:
    """One stage in one process; start as many as the load asks for.

    SIGTERM stops taking up work, lets what runs finish within deadlines.drain_timeout_s, and commits it. GET /ready on the
    health port answers 200 once partitions are assigned. To scale a stage, start more of it.

      rollstream worker sink --output results/
    """
    import uvloop

    from rollstream.runner.worker import WorkerRequest, start_worker

    flags: dict[str, Any] = {"health__port": health_port}
    if model is not None:
        flags |= _model(model)
    settings = load_settings(bootstrap_servers, prefix, config, assignments, **flags).settings
    target = _target(output)
    _check(stage, target, run, settings)
    _logs(settings)
    request = WorkerRequest(stage.value, target, run, instance)
    raise typer.Exit(uvloop.run(start_worker(request, settings, _connection(settings))))


def _check(stage: StageName, target: str | Path | None, run: str | None, settings: Settings) -> None:
    """What can be told before a broker is asked."""
    if stage is StageName.SINK and target is None:
        raise UsageError("worker sink: say where lines go, with --output DIR/ or --output FILE.jsonl --run ID")
    if stage is StageName.SINK and isinstance(target, Path) and run is None:
        raise UsageError(f"{target} holds one run; name it with --run, or give a directory for all runs")
    if stage is not StageName.SINK and (target is not None or run is not None):
        raise UsageError(f"worker {stage.value}: --output and --run belong to the sink")
    if stage is StageName.AGENT and settings.model.url == "scripted":
        raise UsageError(
            "worker agent: name the policy with --model URL/NAME (for a try-out: `python -m rollstream.scripted --port 8001`, "
            "then --model http://127.0.0.1:8001/v1/scripted)"
        )


def _connection(settings: Settings) -> Any:
    from rollstream.cli.common import connection_of

    return connection_of(settings)


def _target(output: str | None) -> str | Path | None:
    """A results file when the name ends in .jsonl, else a directory or URL."""
    return Path(output) if output is not None and output.endswith(".jsonl") and "://" not in output else output


def _logs(settings: Settings) -> None:
    from rollstream.runner.logs import set_up

    set_up(settings.log.level, settings.log.format)
