"""Sessions: what a caller's requests belong to, from its seed to its verification.

Invariants: there are at most so many, of so many bytes; where one must give way it is one that has been verified, the longest
unused first; one that nobody used for the idle limit ends, and what its environment holds for it is freed.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from environments.registry import Binding
from rollstream.front.problems import UnknownSession
from schemas.errors import CapacityError
from schemas.identity import RolloutRef
from services.direct.episode import Episode
from services.direct.services import Services

RUN = "http"
"""The run of rollouts that come over HTTP."""

_SWEEP_S = 1.0


@dataclass(slots=True)
class Session:
    """One caller's rollout. Hold `lock` around calls of the episode. `size` is what its row takes, in bytes."""

    key: str
    episode: Episode
    used: float
    size: int = 0
    tools: Sequence[Mapping[str, Any]] = ()
    verified: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Sessions:
    """The sessions of one environment. `now` gives seconds."""

    def __init__(self, limit: int, limit_bytes: int, idle_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._limit_bytes, self._idle_s, self._now = limit, limit_bytes, idle_s, now
        self._open: OrderedDict[str, Session] = OrderedDict()  # the longest unused first
        self._bytes = 0
        self._ending: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, episode: Episode, size: int) -> Session:
        """Keep a new session; raises `CapacityError` when all there are in use."""
        while len(self._open) >= self._limit or self._bytes + size > self._limit_bytes:
            done = next((s for s in self._open.values() if s.verified and not s.lock.locked()), None)
            if done is None:
                raise CapacityError(
                    f"{len(self._open):,} sessions of {self._bytes:,} bytes are open and none has been verified"
                )
            self._end(done)
        session = Session(secrets.token_urlsafe(24), episode, self._now(), size)
        self._open[session.key] = session
        self._bytes += size
        return session

    def find(self, key: str) -> Session:
        """The session; raises `UnknownSession`."""
        session = self._open.get(key)
        if session is None:
            raise UnknownSession(f"this session is not here: unused for {self._idle_s:g} s, or of another process; seed again")
        session.used = self._now()
        self._open.move_to_end(key)
        return session

    def sweep(self) -> None:
        """End what has been idle for too long."""
        for session in list(self._open.values()):
            if self._now() - session.used < self._idle_s:
                return
            if not session.lock.locked():
                self._end(session)

    async def upkeep(self) -> None:
        """Sweep until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            self.sweep()

    async def close(self) -> None:
        """End all."""
        for session in list(self._open.values()):
            self._end(session)
        if self._ending:
            await asyncio.wait(self._ending)

    def _end(self, session: Session) -> None:
        del self._open[session.key]
        self._bytes -= session.size
        task = asyncio.ensure_future(session.episode.forget())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


def new_episode(services: Services, binding: Binding, row: Mapping[str, Any] | None) -> Episode:
    """An episode with an id that no other has."""
    return Episode(services, binding, new_ref(row or {}), row)


def new_ref(row: Mapping[str, Any]) -> RolloutRef:
    """An identity that no other rollout of this process has, with the indices of `row`."""
    task = row.get("_ng_task_index") or 0
    rollout = row.get("_ng_rollout_index")
    index = rollout if isinstance(rollout, int) and rollout >= 0 else 0
    unique = secrets.token_hex(16)
    return RolloutRef(RUN, unique, task, index, explicit_id=f"h{unique}")
