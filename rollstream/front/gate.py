"""How many requests are worked on at once. Invariant: whoever is not let in is told at once, or after the wait, never later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from schemas.errors import CapacityError


class Gate:
    """Lets `limit` in at once; `waiting` more wait for at most `wait_s`, in their order."""

    def __init__(self, what: str, limit: int, waiting: int, wait_s: float) -> None:
        self._what, self._limit, self._waiting, self._wait_s = what, limit, waiting, wait_s
        self._room = asyncio.Semaphore(limit)
        self.inside = 0
        self.queued = 0

    @asynccontextmanager
    async def entered(self) -> AsyncIterator[None]:
        """Inside while the block runs; raises `CapacityError` when there is no room."""
        await self._enter()
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1
            self._room.release()

    async def _enter(self) -> None:
        if self._room.locked() and self.queued >= self._waiting:
            raise CapacityError(f"{self._limit:,} {self._what} are under way and {self.queued:,} wait")
        self.queued += 1
        try:
            async with asyncio.timeout(self._wait_s):
                await self._room.acquire()
        except TimeoutError as e:
            raise CapacityError(f"no room among {self._limit:,} {self._what} within {self._wait_s:g} s") from e
        finally:
            self.queued -= 1
