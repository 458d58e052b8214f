"""Removes claims that nothing can refer to any more, a bounded number at a time, while a worker runs.

Invariant: it looks only after a pause drawn at random, so replicas do not walk one shared directory together, and what fails
is logged and tried at the next turn: no rollout depends on it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import structlog

from services.runtime.claims import ClaimStore

log = structlog.get_logger(__name__)

PAUSE_S = 3_600.0
"""Mean time between two turns. Claims live for weeks, so an hour more is nothing."""

ENTRIES = 100_000
"""Entries looked at in one turn: seconds of one thread on a local disk."""


class ClaimSweeper:
    """A client of a worker (`start`, `close`) that sweeps its claim store."""

    def __init__(
        self,
        claims: ClaimStore,
        *,
        pause_s: float = PAUSE_S,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._claims = claims
        self._pause_s = pause_s
        self._uniform = uniform
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin; the first turn comes after a pause."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """End, whatever it is at."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._uniform(self._pause_s / 2, self._pause_s * 1.5))
            try:
                removed = await self._claims.sweep(limit=ENTRIES)
            except Exception as e:  # noqa: BLE001 - the store may be away for any reason; the next turn is soon enough
                log.warning("claims_not_swept", error=repr(e))
            else:
                if removed:
                    log.info("claims_swept", removed=removed)
