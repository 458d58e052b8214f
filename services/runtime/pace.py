"""A turnstile that lets a few pass in each iteration of the event loop.

Replies of a model arrive in bursts, and an event loop runs everything that is ready before it looks at anything else: 256
replies worked through at once hold it for 80 ms. Invariant: whoever waits passes in the order of arrival, one iteration later
at the latest for every `slice` that are before it.
"""

from __future__ import annotations

import asyncio
from collections import deque

SLICE = 32
"""Turns that may go on in one iteration: at 100 µs each, the loop comes round every few milliseconds."""


class Pace:
    """Belongs to the event loop on which it is first used."""

    def __init__(self, size: int = SLICE) -> None:
        self._size = size
        self._left = size
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._scheduled = False

    async def enter(self) -> None:
        """Pass at once, or in a later iteration when `size` others have passed in this one."""
        loop = asyncio.get_running_loop()
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._refill)
        if self._left:
            self._left -= 1
            return
        turn = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _refill(self) -> None:
        """A new iteration has begun."""
        self._left = self._size
        while self._left and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # cancelled
                turn.set_result(None)
                self._left -= 1
        self._scheduled = bool(self._waiting)
        if self._scheduled:
            asyncio.get_running_loop().call_soon(self._refill)
