"""The HTTP front in this process: real services, a scripted policy over real HTTP, and a client of the app.

`async with fronted("mcqa") as front: await front.client.post("/verify", json=…)`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
from support.pipeline import registry

from rollstream.front.app import Front
from rollstream.front.bounds import Bounds
from rollstream.front.discovery import Address
from rollstream.front.door import Door
from rollstream.front.mcp import Exposure
from rollstream.runner.assembly import endpoints_of
from rollstream.runner.direct import services_of
from rollstream.scripted import ScriptedModel
from rollstream.settings.model import Settings
from services.direct.services import Services

PORT = 4_711


@dataclass
class Fronted:
    front: Front
    door: Door
    client: httpx.AsyncClient
    model: ScriptedModel
    services: Services

    def another(self, **options: Any) -> httpx.AsyncClient:
        """A client with no cookies of the first one's."""
        return client_of(self.door, **options)

    async def status(self) -> dict[str, Any]:
        return dict((await self.client.get("/status")).json())


def client_of(door: Door, port: int = PORT, host: str = "127.0.0.1", **options: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(door, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url=f"http://{host}:{port}", timeout=30, **options)


@contextlib.asynccontextmanager
async def serviced(model: ScriptedModel, settings: Mapping[str, Any] | None = None, **options: Any) -> AsyncIterator[Services]:
    """Started services whose policy is `model`."""
    found = Settings(**(settings or {}))
    services = services_of(found, endpoints_of(found, model.base_url), **options)
    await services.start()
    try:
        yield services
    finally:
        await services.close()


@contextlib.asynccontextmanager
async def fronted(
    *names: str,
    settings: Mapping[str, Any] | None = None,
    bounds: Bounds | None = None,
    exposure: Exposure | None = None,
    group_size: int | None = None,
    places: Mapping[str, Address] | None = None,
    model: ScriptedModel | None = None,
) -> AsyncIterator[Fronted]:
    async with contextlib.AsyncExitStack() as stack:
        model = await stack.enter_async_context(model or ScriptedModel(record=True))
        found = Settings(**(settings or {}))
        services = services_of(found, endpoints_of(found, model.base_url), group_size)
        head = Address("127.0.0.1", PORT)
        front = Front(names, found, services, registry(), bounds or Bounds(), exposure, head, dict(places or {}))
        door = front.app()
        await stack.enter_async_context(door.app.router.lifespan_context(door.app))  # type: ignore[attr-defined]
        client = await stack.enter_async_context(client_of(door))
        yield Fronted(front, door, client, model, services)


def example(name: str, number: int = 0) -> dict[str, Any]:
    """An example task of an environment."""
    entry = registry().entry_of(name)
    return dict(json.loads((entry.folder / "data" / "example.jsonl").read_text().splitlines()[number]))


def message(text: str) -> dict[str, Any]:
    """The minimal response that a reward function makes of a completion (I5)."""
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    frame = {"id": "resp_1", "created_at": 0, "model": "m", "object": "response", "parallel_tool_calls": True}
    return {**frame, "tool_choice": "auto", "tools": [], "output": [item]}
