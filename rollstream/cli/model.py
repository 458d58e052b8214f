"""`rollstream model serve`: a model behind the APIs that agent harnesses speak."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollstream.cli.common import ConfigFile, Set, UsageError, add, load_settings, say
from rollstream.cli.run import _model

if TYPE_CHECKING:
    from services.gateway.app import Gateway

app = typer.Typer(
    help="The models of the pipeline, for programs that are not of it.", no_args_is_help=True, rich_markup_mode=None
)


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="model", rich_help_panel="About")


def serve(
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="URL/NAME|scripted", help="The policy's endpoint.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option("--engine", metavar="ENGINE", help="What it speaks: see docs/models.md.")
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", metavar="HOST", help="Where to listen; this machine alone by default.")
    ] = None,
    port: Annotated[int | None, typer.Option("--port", min=0, max=65535, help="0: any free port.")] = None,
    captures: Annotated[
        Path | None, typer.Option("--captures", metavar="DIR", help="Keep the calls made under /ng-rollout/ID/ here.")
    ] = None,
    config: ConfigFile = None,
    assignments: Set = None,
) -> None:
    """The policy and the named models over HTTP: /v1/responses, /v1/chat/completions and /v1/messages, whatever they speak.

    Point any agent harness at it. A base URL with /ng-rollout/ID before /v1 ties the calls to a rollout. Prints one JSON line
    with its URL once it listens.

      rollstream model serve --model http://localhost:8000/v1/my-model --engine vllm --captures calls/
    """
    import uvloop

    from rollstream.runner.gateway import serve
    from rollstream.runner.logs import set_up

    flags = {"model__engine": engine, "gateway__host": host, "gateway__port": port, "gateway__captures": captures}
    settings = load_settings(None, None, config, assignments, **flags, **(_model(model) if model else {})).settings
    if settings.gateway.host not in {"127.0.0.1", "localhost", "::1"} and settings.gateway.api_key is None:
        say("anybody who reaches this port may use the models: set gateway.api_key to ask for a key")
    set_up(settings.log.level, settings.log.format)
    try:
        uvloop.run(serve(settings, _announce))
    except OSError as e:
        raise UsageError(f"cannot listen on {settings.gateway.host}:{settings.gateway.port}: {e.strerror or e}") from e


def _announce(gateway: Gateway) -> None:
    from schemas import jsontext

    typer.echo(jsontext.dumps({"url": gateway.url, "base_url": f"{gateway.url}/v1"}).decode())


add(app, serve)
