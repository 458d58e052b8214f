"""`rollstream serve`: environments and their agents over HTTP, without Kafka."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollstream.cli.common import AsJson, ConfigFile, Set, UsageError, add, load_settings, say

if TYPE_CHECKING:
    from rollstream.front.app import Front
    from rollstream.front.bounds import Bounds
    from rollstream.settings import Settings

PORT = 11_000
"""Where clients of the reference look for its head server."""

_MIB = 1 << 20
_BUFFERED = 512 * _MIB


def register(app: typer.Typer) -> None:
    add(app, serve, "Rollouts")


def serve(  # noqa: PLR0917 - the flags of a command
    environment: Annotated[
        list[str] | None, typer.Option("--environment", "-e", metavar="NAME", help="What to serve; may be repeated.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="URL/NAME", help="The policy, for /run and /v1/responses; or scripted."),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Any other than loopback: whoever reaches it uses it.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="0: any free port.")] = PORT,
    mcp: Annotated[bool, typer.Option("--mcp", help="Offer the tools over MCP as well, at /mcp.")] = False,
    group_size: Annotated[
        int | None, typer.Option("--group-size", min=1, help="Rollouts of a task scored together, where that is done.")
    ] = None,
    runs: Annotated[int, typer.Option("--runs", min=1, help="Whole rollouts at once.")] = 256,
    calls: Annotated[int, typer.Option("--calls", min=1, help="Seeds, tools and verifications at once.")] = 256,
    max_body: Annotated[int, typer.Option("--max-body", min=1, max=1_024, metavar="MIB", help="Of one request.")] = 32,
    sessions: Annotated[int, typer.Option("--sessions", min=1, help="Sessions of an environment that are kept.")] = 4_096,
    idle: Annotated[float, typer.Option("--idle", min=1, metavar="SECONDS", help="Unused sessions end after it.")] = 3_600.0,
    config: ConfigFile = None,
    assignments: Set = None,
    as_json: AsJson = False,
) -> None:
    """Environments and their agents over HTTP, as the reference serves them, without Kafka.

    Existing agents, trainers and reward functions call /seed_session, a route for each tool, /verify, /run and /v1/responses;
    those that look for servers ask the head's /global_config_dict_yaml. With one environment its routes stand behind --port;
    with several, each has a port of its own besides, and is at /NAME/… everywhere. Needs the extra http.

      rollstream serve --environment example_single_tool_call --model scripted
    """
    import uvloop

    from environments.extras import OURS, Extras

    if not environment:
        raise UsageError("name what to serve: --environment NAME (repeatable)")
    lack = Extras().lacking(OURS, "http")
    if lack:
        raise UsageError(f"serve: {lack}")
    from rollstream.front.bounds import Bounds
    from rollstream.front.serving import is_local

    settings = _settings(model, config, assignments)
    body = max_body * _MIB
    bounds = Bounds(runs=runs, calls=calls, body=body, buffered=max(_BUFFERED, 2 * body), sessions=sessions, idle_s=idle)
    if not is_local(host):
        say(f"--host {host}: whoever reaches this address can run these environments and call the model; there is no login")
    uvloop.run(_serve(settings, environment, bounds, (host, port), mcp=mcp, group_size=group_size, as_json=as_json))


async def _serve(
    settings: Settings,
    names: list[str],
    bounds: Bounds,
    address: tuple[str, int],
    *,
    mcp: bool,
    group_size: int | None,
    as_json: bool,
) -> None:
    from environments.registry import Registry
    from rollstream.front.app import Front
    from rollstream.front.mcp import Exposure
    from rollstream.front.serving import serve as serve_front
    from rollstream.runner.direct import services_of
    from rollstream.runner.local import models

    registry = Registry.load()
    async with models(settings) as endpoints:
        services = services_of(settings, endpoints, group_size)
        exposure = Exposure() if mcp else None
        front = Front([registry.variant_of(n) for n in names], settings, services, registry, bounds, exposure)
        await serve_front(front, *address, ready=lambda f: _show(f, as_json=as_json))


def _show(front: Front, *, as_json: bool) -> None:
    """Where everything is, on stdout, once it listens."""
    head = front.head.url
    places = {name: front.places.get(name, front.head).url for name in front.environments}
    if as_json:
        line = json.dumps({"head": head, "environments": places})
    else:
        line = "\n".join([f"head server {head}", *(f"{name} {url}" for name, url in places.items())])
    typer.echo(line)
    sys.stdout.flush()


def _settings(model: str | None, config: Path | None, assignments: list[str] | None) -> Settings:
    from rollstream.cli.run import _model
    from rollstream.runner.logs import set_up

    settings = load_settings(config=config, assignments=assignments, **(_model(model) if model is not None else {})).settings
    set_up(settings.log.level, settings.log.format)
    return settings
