"""Which back end a worker uses: asked of the machine once, when the first program comes.

Invariant: a back end that is unsafe is used only when the setting names it; a named one is never replaced by another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import structlog

from environments.context import Limits
from schemas.errors import InfrastructureError
from services.sandbox.backend import Backend, Launch, Program
from services.sandbox.options import Options
from services.sandbox.place import Shape
from services.sandbox.runtime import this_installation

log = structlog.get_logger()

AUTOMATIC = ("bwrap", "landlock", "container")


Make = Callable[[Options], Backend]


def _bwrap(options: Options) -> Backend:
    from services.sandbox.bubblewrap import Bubblewrap

    return Bubblewrap(this_installation(), Shape.of(Limits()), options.spare)


def _landlock(options: Options) -> Backend:
    from services.sandbox.shared_machine import Landlock

    return Landlock(this_installation(), Shape.of(Limits()), options.spare)


def _rlimits(options: Options) -> Backend:
    from services.sandbox.shared_machine import Rlimits

    return Rlimits(this_installation(), Shape.of(Limits()), options.spare)


def _container(options: Options) -> Backend:
    from services.sandbox.container import Container

    return Container(options.image, options.engine)


MAKERS: Mapping[str, Make] = {"bwrap": _bwrap, "landlock": _landlock, "rlimits": _rlimits, "container": _container}


@dataclass(slots=True)
class Chosen:
    """The back end of a worker, found at its first use: a `Launcher`."""

    options: Options
    makers: Mapping[str, Make] = field(default_factory=lambda: MAKERS)
    _backend: Backend | None = None
    _choosing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def launch(self, launch: Launch) -> Program:
        """See `Launcher.launch`; raises `InfrastructureError`, with what each back end lacks, when there is none."""
        return await (await self.backend()).launch(launch)

    async def backend(self) -> Backend:
        """The back end."""
        async with self._choosing:
            if self._backend is None:
                self._backend = await self._choose()
        return self._backend

    async def close(self) -> None:
        """End it."""
        if self._backend is not None:
            await self._backend.close()

    async def _choose(self) -> Backend:
        lacks: dict[str, str] = {}
        for name in AUTOMATIC if self.options.backend == "auto" else (self.options.backend,):
            backend = self.makers[name](self.options)
            reason = await backend.probe()
            if reason is None:
                _say(backend, lacks)
                return backend
            await backend.close()
            lacks[name] = reason
        raise InfrastructureError(
            f"no sandbox for model-written code on this machine: {_listed(lacks)}. {_advice(self.options)}"
        )


def _say(backend: Backend, lacks: Mapping[str, str]) -> None:
    if backend.unsafe:
        log.warning("sandbox.unsafe", backend=backend.name, why="setting sandbox.backend: programs are limited, not isolated")
    elif lacks:
        log.warning("sandbox.second_choice", backend=backend.name, lacks=_listed(lacks))
    else:
        log.info("sandbox.ready", backend=backend.name)


def _listed(lacks: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {reason}" for name, reason in lacks.items())


def _advice(options: Options) -> str:
    if options.backend == "auto":
        return "docs/sandbox.md tells what each needs; sandbox.backend = rlimits runs programs without isolation"
    return "docs/sandbox.md tells what it needs; sandbox.backend = auto takes what the machine has"
