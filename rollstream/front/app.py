"""The app: every environment under its own name, the head server's routes, and what all pass through.

Invariant: an app that has been made serves each of its environments whole; what it could not serve faithfully (a tool with a
name that is ours) is an error here, not a surprise later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import structlog
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from environments.registry import Registry
from rollstream.front.agent_routes import AgentRoutes
from rollstream.front.bounds import Bounds
from rollstream.front.discovery import Address, Directory
from rollstream.front.door import Door, Paths
from rollstream.front.environment_routes import OWN, EnvironmentRoutes
from rollstream.front.gate import Gate
from rollstream.front.mcp import CannotExposeError, Exposure
from rollstream.front.problems import Mask, json_response
from rollstream.front.served import Served
from rollstream.front.sessions import Sessions
from rollstream.settings.mask import MASK, mask_urls
from rollstream.settings.model import Settings
from services.direct.services import Services

log = structlog.get_logger()

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]

HEADS = ("global_config_dict_yaml", "server_instances", "live", "status", "docs", "openapi.json", "redoc")


@dataclass(slots=True)
class Front:
    """What is served. `places` are the environments' addresses; those that have none are at `head`."""

    environments: Sequence[str]
    settings: Settings
    services: Services
    registry: Registry
    bounds: Bounds = field(default_factory=Bounds)
    exposure: Exposure | None = None
    head: Address = field(default_factory=lambda: Address("127.0.0.1", 0))
    places: dict[str, Address] = field(default_factory=dict)
    local: bool = True

    def app(self) -> Door:
        """The ASGI application; raises `DataError` for an environment that is not there, `CannotExposeError`."""
        served = [self._served(name) for name in dict.fromkeys(self.environments)]
        app = FastAPI(title="rollstream", lifespan=_lifespan(self.services, served))
        places = {one.name: self.places.get(one.name, self.head) for one in served}
        _add_head(app, Directory(served, self.settings, self.head, places, time.monotonic()), served)
        for one in served:
            app.mount(f"/{one.name}", self._of(one))
        names = [one.name for one in served]
        by_port = {address.port: name for name, address in self.places.items()}
        paths = Paths(names, HEADS, by_port, names[0] if len(names) == 1 else None)
        return Door(app, paths, self.bounds, local=self.local)

    def _served(self, name: str) -> Served:
        bounds, binding = self.bounds, self.registry.binding(name, None)
        calls = Gate("calls", bounds.calls, bounds.waiting, bounds.wait_s)
        runs = Gate("rollouts", bounds.runs, bounds.waiting, self.services.deadlines.rollout_s)
        sessions = Sessions(bounds.sessions, bounds.session_bytes, bounds.idle_s)
        entry = self.registry.entry_of(binding.name)
        mask = mask_of(self.settings)
        return Served(binding, entry, self.registry, self.services, sessions, calls, runs, bounds, mask)

    def _of(self, one: Served) -> FastAPI:
        taken = sorted(OWN & one.binding.environment.tools.keys())
        if taken or one.name in HEADS or one.name in OWN:
            raise CannotExposeError(f"{one.name}: {', '.join(taken) or one.name} is a path of the front's own")
        app = FastAPI(title=one.name, description=one.entry.manifest.description)
        app.add_exception_handler(Exception, _defect)
        AgentRoutes(one).add_to(app)
        EnvironmentRoutes(one, self.exposure).add_to(app)
        return app


def mask_of(settings: Settings) -> Mask:
    """Takes the models' keys, and what URLs hide, out of a text."""
    keys = [m.api_key.get_secret_value() for m in (settings.model, *settings.models.values()) if m.api_key is not None]

    def mask(text: str) -> str:
        for key in filter(None, keys):
            text = text.replace(key, MASK)
        return mask_urls(text)

    return mask


def _add_head(app: FastAPI, directory: Directory, served: Sequence[Served]) -> None:
    async def global_config_dict_yaml() -> str:
        return directory.config_yaml()  # as a JSON string, which is how the reference's clients decode it

    async def server_instances() -> Response:
        return json_response(directory.instances())

    async def live() -> str:
        return "live"

    async def status() -> Response:
        return json_response({one.name: _counts(one) for one in served})

    for route in (global_config_dict_yaml, server_instances, live, status):
        app.add_api_route(f"/{route.__name__}", route, methods=["GET"], response_model=None)


def _counts(one: Served) -> dict[str, int]:
    calls, runs = one.calls, one.runs
    return {
        "sessions": len(one.sessions),
        "calls": calls.inside,
        "calls_waiting": calls.queued,
        "runs": runs.inside,
        "runs_waiting": runs.queued,
    }


def _lifespan(services: Services, served: Sequence[Served]) -> Lifespan:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await services.start()
            stack.push_async_callback(services.close)
            for one in served:
                stack.push_async_callback(one.sessions.close)
                upkeep = asyncio.ensure_future(one.sessions.upkeep())
                stack.callback(upkeep.cancel)
            yield

    return lifespan


async def _defect(request: Request, error: Exception) -> Response:
    """What is no `RolloutError` is a defect of ours: the log has it, the client is told no more than that."""
    log.error("defect", path=request.scope["path"], exc_info=error)
    text = "a defect in the front; its log says more"
    problem = {"class": "infrastructure", "type": "Defect", "message": text, "retryable": False}
    return json_response({"detail": text, "error": problem}, 500)
