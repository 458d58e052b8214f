"""A bound on calls in flight that holds across event loops.

An environment's methods run on loops of several side threads, so an `asyncio.Semaphore`, which belongs to one loop, does
not bound them. Invariant: never more than `size` holders; a place that becomes free goes to whoever has waited longest.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from types import TracebackType

_Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class Limit:
    """`async with limit:` holds one of `size` places; None is no bound. Waiting ends with the task's own deadline."""

    def __init__(self, size: int | None) -> None:
        self._free = size
        self._lock = threading.Lock()
        self._waiting: deque[_Waiter] = deque()

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        place: asyncio.Future[None] = loop.create_future()
        with self._lock:
            if self._free is None:
                return
            if self._free and not self._waiting:
                self._free -= 1
                return
            self._waiting.append((loop, place))
        try:
            await place
        except asyncio.CancelledError:
            self._give_up(loop, place)
            raise

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._release()

    def _release(self) -> None:
        with self._lock:
            if self._free is None:
                return
            self._free += 1
            while self._free and self._waiting:
                loop, place = self._waiting.popleft()
                self._free -= 1
                try:
                    loop.call_soon_threadsafe(self._hand_over, place)
                except RuntimeError:  # its loop is closed: nobody waits there any more
                    self._free += 1

    def _hand_over(self, place: asyncio.Future[None]) -> None:
        """On the waiter's loop: wake it, or pass the place on when it has stopped waiting."""
        if place.done():
            self._release()
        else:
            place.set_result(None)

    def _give_up(self, loop: asyncio.AbstractEventLoop, place: asyncio.Future[None]) -> None:
        with self._lock:
            try:
                self._waiting.remove((loop, place))
            except ValueError:
                handed = place.done() and not place.cancelled()
            else:
                handed = False
        if handed:
            self._release()
