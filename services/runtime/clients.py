"""The clients that environments use, as one worker has them.

Owns the way from a worker's services to a call's `Context`. Invariant: every client lives on the worker's event loop.
Environment code runs on loops of its own (`offload`), so what it gets are stand-ins that carry each call over and back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from environments.context import (
    CodeServer,
    Context,
    Limits,
    ModelClient,
    Pages,
    Pool,
    Sandbox,
    SandboxResult,
    Search,
    Session,
    Sessions,
)
from environments.response import Response
from schemas.identity import RolloutRef
from services.runtime.chance import rng_of
from services.tracing.calls import TracedModels
from services.tracing.tracer import CURRENT

T = TypeVar("T")


class Bridge:
    """Runs coroutines on the worker's loop for whoever calls from another."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def attach(self) -> None:
        """Make the running loop the worker's."""
        self._loop = asyncio.get_running_loop()

    async def call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of `make()` on the worker's loop; a cancelled call is cancelled there too."""
        if self._loop is None or self._loop is asyncio.get_running_loop():
            return await make()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(make(), self._loop))


class Startable(Protocol):
    """A service with connections or processes of its own."""

    async def start(self) -> None: ...
    async def close(self) -> None: ...


@dataclass(slots=True)
class Clients:
    """What a worker offers to environment code. `owned` are started with the worker, in this order, and closed in reverse."""

    models: Mapping[str, ModelClient] = field(default_factory=dict)
    sandbox: Sandbox | None = None
    sessions: Sessions | None = None
    search: Search | None = None
    pool: Pool | None = None
    code_server: CodeServer | None = None
    pages: Pages | None = None
    data_dir: Path | None = None
    owned: Sequence[Startable] = ()
    _bridge: Bridge = field(default_factory=Bridge)
    _offered: dict[str, Any] = field(default_factory=lambda: dict(vars(Context())))

    async def start(self) -> None:
        """Start what is owned; the running loop becomes theirs."""
        self._bridge.attach()
        for service in self.owned:
            await service.start()
        self._offered = {**vars(Context()), **self._stand_ins()}

    async def close(self) -> None:
        """Close what is owned, the last first."""
        for service in reversed(self.owned):
            await service.close()

    def context(self, ref: RolloutRef, turn: int) -> Context:
        """The context of a call for the rollout at `turn` (0: its seed; `chance.VERIFICATION`)."""
        made = object.__new__(Context)  # its `__init__` takes 6 µs, as every frozen dataclass with a dozen fields
        made.__dict__.update(self._offered, rollout_id=ref.rollout_id, make_rng=partial(rng_of, ref, turn))
        if (trail := CURRENT.get()) is not None:
            made.__dict__["models"] = TracedModels(made.models, trail)
        return made

    def _stand_ins(self) -> dict[str, Any]:
        bridge = self._bridge
        return {
            "models": _Models(self.models, bridge),
            "sandbox_client": _Sandbox(self.sandbox, bridge) if self.sandbox else None,
            "session_pool": _Sessions(self.sessions, bridge) if self.sessions else None,
            "search_client": _Search(self.search, bridge) if self.search else None,
            "pool_client": _Pool(self.pool, bridge) if self.pool else None,
            "code_server_client": _CodeServer(self.code_server, bridge) if self.code_server else None,
            "pages_client": _Pages(self.pages, bridge) if self.pages else None,
            "data_dir": self.data_dir,
        }


@dataclass(frozen=True, slots=True)
class _Models(Mapping[str, ModelClient]):
    """By name, when a name is asked for: a worker's models may answer to names that nobody has listed."""

    models: Mapping[str, ModelClient]
    bridge: Bridge

    def __getitem__(self, name: str) -> ModelClient:
        return _Model(self.models[name], self.bridge)

    def __iter__(self) -> Iterator[str]:
        return iter(self.models)

    def __len__(self) -> int:
        return len(self.models)


@dataclass(frozen=True, slots=True)
class _Model:
    client: ModelClient
    bridge: Bridge

    async def create(self, params: Mapping[str, Any]) -> Response:
        return await self.bridge.call(lambda: self.client.create(params))


@dataclass(frozen=True, slots=True)
class _Sandbox:
    client: Sandbox
    bridge: Bridge

    async def run(
        self,
        argv: Sequence[str],
        *,
        files: Mapping[str, bytes] | None = None,
        stdin: bytes = b"",
        limits: Limits = Limits(),
        collect: Sequence[str] = (),
    ) -> SandboxResult:
        call = partial(self.client.run, argv, files=files, stdin=stdin, limits=limits, collect=collect)
        return await self.bridge.call(call)


@dataclass(frozen=True, slots=True)
class _Session:
    client: Session
    bridge: Bridge

    async def execute(self, code: str, *, timeout_s: float) -> Mapping[str, Any]:
        return await self.bridge.call(lambda: self.client.execute(code, timeout_s=timeout_s))


@dataclass(frozen=True, slots=True)
class _Sessions:
    client: Sessions
    bridge: Bridge

    async def get(
        self,
        rollout: str,
        driver: str,
        *,
        journal: Sequence[str] = (),
        limits: Limits = Limits(),
    ) -> Session:
        found = await self.bridge.call(partial(self.client.get, rollout, driver, journal=journal, limits=limits))
        return _Session(found, self.bridge)

    async def close(self, rollout: str) -> None:
        await self.bridge.call(lambda: self.client.close(rollout))


@dataclass(frozen=True, slots=True)
class _Search:
    client: Search
    bridge: Bridge

    async def search(self, query: str, *, limit: int) -> Sequence[Mapping[str, Any]]:
        return await self.bridge.call(lambda: self.client.search(query, limit=limit))


@dataclass(frozen=True, slots=True)
class _Pool:
    client: Pool
    bridge: Bridge

    async def run(self, function: Callable[..., T], *args: Any, timeout_s: float | None = None) -> T:
        return await self.bridge.call(lambda: self.client.run(function, *args, timeout_s=timeout_s))


@dataclass(frozen=True, slots=True)
class _CodeServer:
    client: CodeServer
    bridge: Bridge

    async def execute(self, request: Mapping[str, Any], *, timeout_s: float) -> Mapping[str, Any]:
        return await self.bridge.call(lambda: self.client.execute(request, timeout_s=timeout_s))


@dataclass(frozen=True, slots=True)
class _Pages:
    client: Pages
    bridge: Bridge

    async def get(self, url: str, *, timeout_s: float) -> str:
        return await self.bridge.call(lambda: self.client.get(url, timeout_s=timeout_s))
