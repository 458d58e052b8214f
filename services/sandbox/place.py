"""What the back ends of this machine share: making boxes, keeping a few ready, trying one.

Invariant: a box serves one program and is thrown away, so nothing of one program can be met by the next.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from environments.context import PYTHON, Limits
from schemas.errors import InfrastructureError
from services.sandbox.backend import Launch, TooSlow
from services.sandbox.box import Box, BoxProgram

REFILL_AFTER_S = 0.02
"""A short program is over by then, and starting the next box does not compete with it for the processors."""


TRIAL_S = 10.0
"""The program that tries a back end takes 20 ms."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What has to be known when a box is started, before its program is."""

    scratch: int
    network: bool

    @classmethod
    def of(cls, limits: Limits) -> Shape:
        return cls(limits.scratch, limits.network)


@dataclass(slots=True)
class Stock:
    """Boxes of one shape that are started before they are asked for.

    Each taken one is replaced, so the work of starting is the same; only its wait is gone. At most `size` stand idle.
    """

    make: Callable[[Shape], Coroutine[Any, Any, Box]]
    shape: Shape
    size: int
    _ready: deque[Box] = field(default_factory=deque)
    _starting: set[asyncio.Task[None]] = field(default_factory=set)
    _closed: bool = False

    async def take(self, shape: Shape) -> Box:
        """A box of this shape: a ready one, or one that is started now."""
        if shape != self.shape or self._closed:
            return await self.make(shape)
        box = await self._alive()
        asyncio.get_running_loop().call_later(REFILL_AFTER_S, self._refill)
        return box or await self.make(shape)

    async def _alive(self) -> Box | None:
        while self._ready:
            box = self._ready.popleft()
            if box.life.alive:
                return box
            await box.close()
        return None

    def _refill(self) -> None:
        if self._closed or len(self._ready) + len(self._starting) >= self.size:
            return
        task = asyncio.create_task(self._start())
        self._starting.add(task)
        task.add_done_callback(self._started)

    def _started(self, task: asyncio.Task[None]) -> None:
        self._starting.discard(task)
        if not task.cancelled() and task.exception() is None:
            self._refill()

    async def _start(self) -> None:
        box = await self.make(self.shape)  # a failure is told to the next that asks, who starts one for itself
        if self._closed:
            await box.close()
        else:
            self._ready.append(box)

    async def close(self) -> None:
        """End the idle ones."""
        self._closed = True
        await asyncio.gather(*self._starting, return_exceptions=True)
        await asyncio.gather(*(box.close() for box in self._ready))
        self._ready.clear()


async def launch_in(stock: Stock, launch: Launch) -> BoxProgram:
    """A program in a box of the stock."""
    box = await stock.take(Shape.of(launch.limits))
    try:
        return await box.launch(launch)
    except BaseException:
        await box.close()
        raise


async def trial(launcher: Callable[[Launch], Coroutine[Any, Any, BoxProgram]]) -> str | None:
    """Why a small program could not be run, or None. Raises `TooSlow` when it took too long."""
    try:
        program = await launcher(Launch([PYTHON, "-c", "print(6 * 7)"], limits=Limits(wall_s=TRIAL_S)))
    except TooSlow:
        raise
    except InfrastructureError as error:
        return str(error)
    try:
        async with asyncio.timeout(TRIAL_S):
            ended = await program.wait()
    except TimeoutError as error:
        raise TooSlow(f"a small program did not end within {TRIAL_S:g} s") from error
    except InfrastructureError as error:
        return str(error)
    finally:
        with contextlib.suppress(InfrastructureError):
            await program.close()
    if ended.stdout.strip() == b"42":
        return None
    return f"a small program ended with {ended.returncode}: {ended.stderr[-500:].decode(errors='replace').strip()}"
