"""Live sessions by rollout: `environments.context.Sessions`.

Owns which rollout has a process on this worker. Invariants:

- At most `limit` processes at a time. For a further one the longest unused makes room; it is rebuilt when its rollout comes
  again. Where all are at work, the newcomer waits, and fails with `CapacityError` after `WAIT_S`.
- A rollout's calls run one after another, in the process that has executed exactly what its journal says, or in a new one that
  executes the journal first, within `rebuild_s`.
- A process that nobody has called for `idle_s` is ended; so is one whose call was cancelled or ran over its time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog

from environments.context import Limits
from schemas.errors import CapacityError, InfrastructureError, RolloutTimeout
from services.sandbox.backend import Launcher
from services.sandbox.session_limits import SessionLimits
from services.sandbox.session_process import Executed, Plan, SessionProcess

log = structlog.get_logger()

DEFAULTS = SessionLimits()

MIN_SWEEP_S = 0.05


@dataclass(slots=True)
class _Turn:
    """Who may use a rollout's session now, and how many want to."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    wanted: int = 0


class LiveSessions:
    """The sessions of one worker, on its event loop. `Upkeep` starts and ends them with the worker."""

    def __init__(self, launcher: Launcher, limits: SessionLimits = DEFAULTS) -> None:
        self._launcher = launcher
        self.limits = limits
        self._live: dict[str, SessionProcess] = {}
        self._turns: dict[str, _Turn] = {}
        self._passing = 0  # being started, or ended
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def count(self) -> int:
        """Processes that are there, being started or being ended."""
        return len(self._live) + self._passing

    async def get(self, rollout: str, driver: str, *, journal: Sequence[str] = (), limits: Limits = Limits()) -> RolloutSession:
        """See `Sessions.get`. Raises `RolloutTimeout` for a journal that takes too long, `CapacityError` without room."""
        session = RolloutSession(self, Plan(rollout, driver, limits), list(journal))
        async with self._turn(rollout):
            await self._ready(session)
        return session

    async def execute(self, session: RolloutSession, code: str, timeout_s: float) -> Mapping[str, Any]:
        """See `Session.execute`."""
        async with self._turn(session.plan.rollout):
            live = await self._ready(session)
            try:
                reply = await live.call(code, timeout_s)
            finally:
                if live.closed:
                    self._forget(live)
            session.journal.append(code)
            return reply

    async def close(self, rollout: str) -> None:
        """See `Sessions.close`."""
        async with self._turn(rollout):
            await self._end(self._live.get(rollout))

    async def sweep(self, now: float) -> None:
        """End what has been idle for too long at `now` (the loop's time)."""
        for rollout, live in list(self._live.items()):
            if now - live.used >= self.limits.idle_s and not self._busy(rollout):
                await self._end(live)

    async def end_all(self) -> None:
        """End every session."""
        await asyncio.gather(*(self._end(live) for live in list(self._live.values())))

    @property
    def next_sweep(self) -> float | None:
        """The loop's time at which the first session may be idle for too long; None when there is none."""
        used = min((live.used for live in self._live.values()), default=None)
        return None if used is None else used + self.limits.idle_s

    @asynccontextmanager
    async def _turn(self, rollout: str) -> AsyncIterator[None]:
        turn = self._turns.setdefault(rollout, _Turn())
        turn.wanted += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.wanted -= 1
            if not turn.wanted:
                del self._turns[rollout]
            self._say_room()

    def _say_room(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def _ready(self, session: RolloutSession) -> SessionProcess:
        live = self._live.get(session.plan.rollout)
        if live is not None and live.plan == session.plan and live.executed == Executed(session.journal):
            return live
        await self._end(live)
        return await self._build(session)

    async def _build(self, session: RolloutSession) -> SessionProcess:
        await self._make_room()
        self._passing += 1
        try:
            live = await SessionProcess.start(self._launcher, session.plan)
        finally:
            self._passing -= 1
            self._say_room()
        self._live[session.plan.rollout] = live
        if session.journal:
            await self._replay(live, session.journal)
        return live

    async def _replay(self, live: SessionProcess, journal: Sequence[str]) -> None:
        seconds = self.limits.rebuild_s
        try:
            async with asyncio.timeout(seconds):
                for code in journal:
                    await live.call(code, seconds)
        except (TimeoutError, RolloutTimeout) as error:
            text = f"executing the {len(journal)} calls of a session again took longer than {seconds:g} s (sessions.rebuild_s)"
            raise RolloutTimeout(text) from error
        finally:
            if live.closed or live.executed != Executed(journal):
                await self._end(live)
        log.info("session.rebuilt", rollout=live.plan.rollout, calls=len(journal))

    async def _make_room(self) -> None:
        try:
            async with asyncio.timeout(self.limits.wait_s):
                while self.count >= self.limits.limit:
                    idle = [live for rollout, live in self._live.items() if not self._busy(rollout)]
                    if idle:
                        await self._end(min(idle, key=lambda live: live.used))
                        continue
                    await self._next_change()
        except TimeoutError as error:
            text = f"all {self.limits.limit} live sessions of this worker were at work for {self.limits.wait_s:g} s"
            raise CapacityError(f"{text} (setting sessions.limit)") from error

    async def _next_change(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            await waiter
        finally:
            self._waiting.discard(waiter)

    def _busy(self, rollout: str) -> bool:
        return rollout in self._turns

    def _forget(self, live: SessionProcess) -> None:
        if self._live.get(live.plan.rollout) is live:
            del self._live[live.plan.rollout]

    async def _end(self, live: SessionProcess | None) -> None:
        if live is None:
            return
        self._forget(live)
        self._passing += 1
        try:
            await live.close()
        finally:
            self._passing -= 1
            self._say_room()


@dataclass(slots=True)
class RolloutSession:
    """One rollout's session, wherever its process is: `environments.context.Session`. `journal`: what it has executed."""

    sessions: LiveSessions
    plan: Plan
    journal: list[str]

    async def execute(self, code: str, *, timeout_s: float) -> Mapping[str, Any]:
        """See `Session.execute`. Raises `SessionEnded` when the code ended its own process."""
        return await self.sessions.execute(self, code, timeout_s)


class Upkeep:
    """Ends idle sessions while a worker runs, and all of them with it."""

    def __init__(self, sessions: LiveSessions) -> None:
        self._sessions = sessions
        self._sweeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to watch."""
        self._sweeping = asyncio.create_task(self._sweep())

    async def close(self) -> None:
        """End the sessions."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        await self._sessions.end_all()

    async def _sweep(self) -> None:
        now = asyncio.get_running_loop().time
        while True:
            due = self._sessions.next_sweep
            await asyncio.sleep(max(MIN_SWEEP_S, self._sessions.limits.idle_s if due is None else due - now()))
            try:
                await self._sessions.sweep(now())
            except InfrastructureError as error:
                log.warning("session.not_closed", error=str(error))
