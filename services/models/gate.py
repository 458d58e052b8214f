"""Who may send a try to an endpoint now.

One gate per endpoint and process puts the limiter, the breaker and a server's Retry-After before one first-in, first-out
queue. Invariants: tries in flight never exceed the allowance at the time they were let in; every ticket is given back
once; whenever a place is free and the gate is not shut, nobody waits (no lost wake-up); a waiting call costs one future.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from enum import Enum, auto
from typing import NamedTuple

import structlog

from services.models.breaker import Breaker
from services.models.endpoint import ModelEndpoint
from services.models.limiter import Limiter

_log = structlog.get_logger(__name__)


class Outcome(Enum):
    """What a try says about its endpoint."""

    ANSWERED = auto()
    """It spoke HTTP, with whatever status."""
    OVERLOADED = auto()
    """It answered that it has too much to do."""
    UNREACHABLE = auto()
    """No connection, or a lost one."""
    SILENT = auto()
    """It took the request and said nothing in time, or we stopped waiting: no news about the endpoint."""


class EndpointDownError(Exception):
    """The breaker has been open for longer than a call may wait for it."""


class Ticket(NamedTuple):
    """The right to one try. `started` is loop time; `probe`: the breaker waits for what becomes of it."""

    started: float
    probe: bool


class Gate:
    """Lets tries in by `enter` and out by `leave`. Use from one event loop."""

    def __init__(self, endpoint: ModelEndpoint, loop: asyncio.AbstractEventLoop) -> None:
        self.limiter = Limiter(endpoint.max_concurrency)
        self.breaker = Breaker(endpoint.breaker)
        self.in_flight = 0
        self._where = endpoint.base_url
        self._patience = endpoint.retries.max_elapsed_s
        self._loop = loop
        self._waiting: OrderedDict[asyncio.Future[Ticket], float] = OrderedDict()
        self._paused_until = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._busy_since = self._heard_at = float("-inf")

    @property
    def waiting(self) -> int:
        """Calls in the queue."""
        return len(self._waiting)

    def silence(self, now: float) -> float:
        """Seconds for which calls have been out or queued without any answer from the endpoint."""
        return now - max(self._busy_since, self._heard_at) if self.in_flight or self._waiting else 0.0

    def try_enter(self) -> Ticket | None:
        """A ticket if nobody waits and the gate is open: the ordinary case, without a coroutine."""
        if self._waiting:
            return None
        now = self._loop.time()
        if not self.in_flight:
            self._busy_since = now
        return self._admit(now) if self._admits(now) else None

    async def enter(self, deadline: float) -> Ticket:
        """Wait for a place until `deadline` (loop time).

        Raises `TimeoutError` then, and `EndpointDownError` when the endpoint has been unreachable for longer than the
        retry budget allows this call to wait.
        """
        if ticket := self.try_enter():
            return ticket
        now = self._loop.time()
        place: asyncio.Future[Ticket] = self._loop.create_future()
        self._waiting[place] = now
        self._arm(now)
        try:
            async with asyncio.timeout_at(deadline):
                return await place
        except BaseException:
            self._give_up(place)
            raise

    def leave(self, ticket: Ticket, outcome: Outcome, pause_s: float | None = None) -> None:
        """Give a ticket back with what was learnt; `pause_s` shuts the gate to everyone for that long."""
        now = self._loop.time()
        if outcome is Outcome.ANSWERED or outcome is Outcome.OVERLOADED:
            self._heard(ticket, outcome, now)
        elif outcome is Outcome.UNREACHABLE:
            self._lost(ticket, now)
        elif ticket.probe:
            self.breaker.abandoned()
        if pause_s:
            self._paused_until = max(self._paused_until, now + pause_s)
        self.in_flight -= 1
        if self._waiting:
            self._pump(now)

    def connected(self) -> None:
        """The probe has a connection."""
        self.breaker.connected()
        self._pump(self._loop.time())

    def close(self) -> None:
        """Turn away everybody who waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            place, _ = self._waiting.popitem(last=False)
            if not place.done():
                place.set_exception(EndpointDownError("the client was closed"))

    def _heard(self, ticket: Ticket, outcome: Outcome, now: float) -> None:
        self._heard_at = now
        if self.breaker.answered():
            _log.info("model_reachable_again", endpoint=self._where)
        if outcome is Outcome.ANSWERED:
            self.limiter.succeeded(self.in_flight)
        elif self.limiter.overloaded(self.in_flight, started=ticket.started, now=now):
            _log.info("model_overloaded", endpoint=self._where, allowance=self.limiter.allowance)

    def _lost(self, ticket: Ticket, now: float) -> None:
        was_down = self.breaker.down_since is not None
        if self.breaker.failed(now, probe=ticket.probe) and not was_down:
            _log.warning("model_unreachable", endpoint=self._where, again_in_s=round(self.breaker.shut_until - now, 1))

    def _admits(self, now: float) -> bool:
        return self.in_flight < self.limiter.allowance and now >= self._paused_until and self.breaker.admits(now)

    def _admit(self, now: float) -> Ticket:
        self.in_flight += 1
        return Ticket(now, self.breaker.admit())

    def _pump(self, now: float) -> None:
        while self._waiting and self._admits(now):
            place, _ = self._waiting.popitem(last=False)
            if not place.done():
                place.set_result(self._admit(now))
        self._shed(now)
        self._arm(now)

    def _shed(self, now: float) -> None:
        """Turn away those who have waited at a dead endpoint for as long as the budget allows."""
        if self.breaker.down_since is None:
            return
        while self._waiting:
            place, since = next(iter(self._waiting.items()))
            if now - max(since, self.breaker.down_since) < self._patience:
                return
            del self._waiting[place]
            if not place.done():
                place.set_exception(EndpointDownError(f"unreachable for {now - self.breaker.down_since:.0f} s"))

    def _arm(self, now: float) -> None:
        """Wake up when a pause or cool-down ends; a place that becomes free wakes by itself."""
        at = max(self._paused_until, self.breaker.shut_until)
        if not self._waiting or at <= now or (self._timer is not None and self._timer_at <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(at, self._wake), at

    def _wake(self) -> None:
        self._timer = None
        self._pump(self._loop.time())

    def _give_up(self, place: asyncio.Future[Ticket]) -> None:
        """Whoever waited has stopped: leave the queue, or hand back a place that came too late."""
        self._waiting.pop(place, None)
        if place.done() and not place.cancelled() and place.exception() is None:
            self.leave(place.result(), Outcome.SILENT)
