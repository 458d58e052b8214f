"""How many tries an endpoint may have in flight: additive increase, multiplicative decrease.

Invariant: 1 ≤ `allowance` ≤ `bound`, always. A pure state machine over times that the caller gives.
"""

from __future__ import annotations

CUT_INTERVAL_S = 1.0
"""At most one halving in this time. A server that refuses, refuses many at once; they are one piece of news."""

REGAIN = 1 / 32
"""Below the level that was too high, a full window of answers raises the allowance by this share of that level: a lost
half is regained in 16 windows. One more per window, as TCP does it, would take days where a window is minutes long."""

PROBE = 1 / 2
"""Beyond that level the old news is disproved, and each answer raises the allowance by this much (half as much again per
window): a single refusal while little was in flight must not hold back 16,000 rollouts later."""


class Limiter:
    """The allowance of one endpoint. It starts at the bound: nobody has complained yet."""

    __slots__ = ("_allowance", "_cut_at", "_level", "bound")

    def __init__(self, bound: int) -> None:
        if bound < 1:
            raise ValueError(f"the bound of concurrent calls must be at least 1, not {bound}")
        self.bound = bound
        self._allowance = float(bound)
        self._level = float(bound)
        self._cut_at = float("-inf")

    @property
    def allowance(self) -> int:
        """Tries that may be in flight now."""
        return int(self._allowance)

    def succeeded(self, in_flight: int) -> None:
        """An answer came while `in_flight` tries (itself included) were out.

        An allowance that is not in use has not been shown to be safe, and does not grow.
        """
        allowance = self._allowance
        if allowance < self.bound and in_flight >= allowance / 2:
            gain = max(1.0, self._level * REGAIN) / allowance if allowance < self._level else PROBE
            self._allowance = min(float(self.bound), allowance + gain)

    def overloaded(self, in_flight: int, *, started: float, now: float) -> bool:
        """The endpoint refused a try that began at `started`, `in_flight` being out. Returns whether that halved it.

        Half of what was really in flight, as TCP does it: half of an unused allowance would change nothing. Tries sent
        before the last cut say nothing about the allowance after it.
        """
        if started < self._cut_at or now - self._cut_at < CUT_INTERVAL_S:
            return False
        self._level = min(self._allowance, float(max(in_flight, 1)))
        self._allowance = max(1.0, self._level / 2)
        self._cut_at = now
        return True
