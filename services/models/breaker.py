"""Whether an endpoint is worth connecting to.

A pure state machine over times that the caller gives. Invariant: while the breaker is open nobody connects, and when
its cool-down is over exactly one try (the probe) does, whose fate decides for all.
"""

from __future__ import annotations

from enum import StrEnum

from services.models.endpoint import BreakerSettings


class BreakerState(StrEnum):
    """`closed`: everybody may call; `open`: nobody until the cool-down is over; `probing`: one try is out."""

    CLOSED = "closed"
    OPEN = "open"
    PROBING = "probing"


class Breaker:
    """Counts connection-level failures in a row. Any HTTP answer, an error too, is proof of life."""

    __slots__ = ("_cool_down", "_failures", "_probe_at", "_settings", "down_since", "state")

    def __init__(self, settings: BreakerSettings) -> None:
        self._settings = settings
        self._failures = 0
        self._cool_down = settings.cool_down_s
        self.state = BreakerState.CLOSED
        self._probe_at = float("-inf")
        self.down_since: float | None = None
        """When it opened first since the last answer."""

    @property
    def shut_until(self) -> float:
        """When the cool-down is over; minus infinity when the breaker is not open."""
        return self._probe_at if self.state is BreakerState.OPEN else float("-inf")

    @property
    def is_closed(self) -> bool:
        """Whether everybody may call."""
        return self.state is BreakerState.CLOSED

    def admits(self, now: float) -> bool:
        """Whether a try may start now."""
        return self.state is BreakerState.CLOSED or (self.state is BreakerState.OPEN and now >= self._probe_at)

    def admit(self) -> bool:
        """Let a try start that `admits` allowed. Returns whether it is the probe."""
        if self.state is BreakerState.CLOSED:
            return False
        self.state = BreakerState.PROBING
        return True

    def connected(self) -> None:
        """The probe's connection stands, so others need not wait for its generation.

        On parole: until somebody has been answered, one more failure opens the breaker again.
        """
        if self.state is BreakerState.PROBING:
            self.state = BreakerState.CLOSED
            self._failures = self._settings.failures - 1

    def answered(self) -> bool:
        """The endpoint answered. Returns whether it had been down."""
        was_down = self.down_since is not None
        self._failures = 0
        if was_down:
            self._cool_down = self._settings.cool_down_s
            self.state = BreakerState.CLOSED
            self.down_since = None
        return was_down

    def failed(self, now: float, *, probe: bool) -> bool:
        """A try failed to connect or lost its connection. Returns whether that opened the breaker.

        What was sent before the breaker opened and fails now is no further news.
        """
        if self.state is BreakerState.OPEN or (self.state is BreakerState.PROBING and not probe):
            return False
        self._failures += 1
        if self.state is BreakerState.CLOSED and self._failures < self._settings.failures:
            return False
        self._open(now)
        return True

    def abandoned(self) -> None:
        """The probe was cancelled before it showed anything: the next try is the probe."""
        if self.state is BreakerState.PROBING:
            self.state = BreakerState.OPEN

    def _open(self, now: float) -> None:
        self.state = BreakerState.OPEN
        self._probe_at = now + self._cool_down
        self._cool_down = min(self._cool_down * 2, self._settings.max_cool_down_s)
        if self.down_since is None:
            self.down_since = now
