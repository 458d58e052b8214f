"""Which back end a worker uses: asked of the machine once, when the first program comes.

Invariant: a back end that is unsafe is used only when the setting names it; a named one is never replaced by another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import structlog

from environments.context import Limits
from schemas.errors import InfrastructureError
from services.sandbox.backend import Backend, Launch, Program, TooSlow
from services.sandbox.options import Options
from services.sandbox.place import Shape
from services.sandbox.runtime import this_installation

log = structlog.get_logger()

AUTOMATIC = ("bwrap", "landlock", "container")

PROBES = 3
"""A back end that answers too slowly is asked this often: the choice holds for the worker's life, a loaded moment does not."""

REMEMBERED_S = 60.0
"""How long "there is none" is believed: a rollout that fails for it is retried sooner than a machine is repaired."""

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
    clock: Callable[[], float] = time.monotonic
    _backend: Backend | None = None
    _choosing: asyncio.Task[Backend] | None = None
    _none: str = ""
    _none_until: float = 0.0

    async def launch(self, launch: Launch) -> Program:
        """See `Launcher.launch`; raises `InfrastructureError`, with what each back end lacks, when there is none."""
        return await (await self.backend()).launch(launch)

    async def backend(self) -> Backend:
        """The back end. All that ask at once wait for one search, which none of them cancels."""
        if self._backend is not None:
            return self._backend
        if self.clock() < self._none_until:
            raise InfrastructureError(self._none)
        if self._choosing is None:
            self._choosing = asyncio.create_task(self._choose())
            self._choosing.add_done_callback(self._chose)
        return await asyncio.shield(self._choosing)

    def _chose(self, task: asyncio.Task[Backend]) -> None:
        self._choosing = None
        if task.cancelled():
            return
        if task.exception() is None:
            self._backend = task.result()

    async def close(self) -> None:
        """End it, and a search for it."""
        if self._choosing is not None:
            self._choosing.cancel()
            await asyncio.gather(self._choosing, return_exceptions=True)
        if self._backend is not None:
            await self._backend.close()

    async def _choose(self) -> Backend:
        lacks: dict[str, str] = {}
        for name in AUTOMATIC if self.options.backend == "auto" else (self.options.backend,):
            found = await self._tried(name)
            if not isinstance(found, str):
                _say(found, lacks)
                return found
            lacks[name] = found
        self._none = f"no sandbox for model-written code on this machine: {_listed(lacks)}. {_advice(self.options)}"
        self._none_until = self.clock() + REMEMBERED_S
        raise InfrastructureError(self._none)

    async def _tried(self, name: str) -> Backend | str:
        """The back end of that name, or why it is none; closed then, and when the search is cancelled."""
        try:
            backend = self.makers[name](self.options)
        except OSError as error:
            return f"it could not be set up: {error}"
        reason: str | None = "it was not asked"
        try:
            reason = await _asked(backend)
        finally:
            if reason is not None:
                await backend.close()
        return backend if reason is None else reason


async def _asked(backend: Backend) -> str | None:
    """Why the machine cannot offer it, or None; one that is too slow is asked again."""
    said = ""
    for _ in range(PROBES):
        try:
            return await backend.probe()
        except TooSlow as error:
            said = str(error)
            log.warning("sandbox.slow", backend=backend.name, error=said)
        except OSError as error:
            return str(error)
    return f"{said} ({PROBES} times)"


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
