"""Statistics of every prefix of a list of rollouts, in one pass over it.

Owns the running forms of B11's formulas (platform.md): entry k - 1 of what a function here returns belongs to the first k
values. Invariant: time grows with the number of rollouts, not with its square, and means are those of `math.fsum`, to the
last bit: they are taken from exact sums.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import accumulate

_NO_DIFFERENCE = 2.0**-60
"""A chance of failure so small that 1 minus it is 1 in a double."""


class RunningMean:
    """The mean of the values added so far, without rounding error in the sum and never outside the values.

    The sum is held as numbers that do not overlap (Shewchuk 1997, "Adaptive Precision Floating-Point Arithmetic", the
    method of `math.fsum`). Beyond the largest float, and for infinities of both signs, the mean is NaN.
    """

    __slots__ = ("_high", "_low", "_parts", "_special", "count")

    def __init__(self) -> None:
        self._parts: list[float] = []
        self._special = 0.0
        self.count = 0
        self._low, self._high = math.inf, -math.inf

    def add(self, value: float) -> None:
        """Take one more value into the mean."""
        self.count += 1
        self._low, self._high = min(self._low, value), max(self._high, value)
        if not math.isfinite(value):
            self._special += value
            return
        parts = []
        for part in self._parts:
            total = value + part
            larger, smaller = (value, part) if abs(value) >= abs(part) else (part, value)
            rest = smaller - (total - larger)
            if rest:
                parts.append(rest)
            value = total
        if math.isinf(value):
            self._special = math.nan
        self._parts = [*parts, value]

    def value(self, more: Sequence[float] = ()) -> float:
        """The mean of the values added and of `more`, which is not added; NaN of nothing."""
        count = self.count + len(more)
        if not count:
            return math.nan
        try:
            mean = math.fsum((self._special, *self._parts, *more)) / count
        except (OverflowError, ValueError):
            return math.nan
        return min(max(mean, min((self._low, *more))), max((self._high, *more)))


def means(values: Iterable[float]) -> Iterator[float]:
    """The mean of each prefix."""
    mean = RunningMean()
    for value in values:
        mean.add(value)
        yield mean.value()


def deviations(values: Sequence[float]) -> Iterator[float]:
    """The sample standard deviation (n - 1) of each prefix, by Welford's recurrence (Technometrics 4(3), 1962).

    0 for one value; NaN when it lies beyond the largest float.
    """
    mean = squares = 0.0
    bounds = zip(accumulate(values, min), accumulate(values, max), strict=True)
    for count, (value, (low, high)) in enumerate(zip(values, bounds, strict=True), start=1):
        off = value - mean
        mean += off / count
        squares += off * (value - mean)
        if count == 1 or low == high:
            yield 0.0  # a rounded mean would leave a trace
        else:
            yield math.sqrt(squares / (count - 1)) if math.isfinite(squares) else math.nan


def passes(values: Sequence[float]) -> Iterator[float]:
    """pass@k of each k: the chance that k of the values hold a 1 (unbiased estimator).

    The best of the first k when the values are not all 0 or 1.
    """
    if any(v not in (0.0, 1.0) for v in values):
        return accumulate(values, max)
    return (1.0 - failing for failing in _failing(sum(v == 0.0 for v in values), len(values)))


def _failing(zeros: int, count: int) -> Iterator[float]:
    """C(zeros, k) / C(count, k) for k = 1 … count, the binomials kept as whole numbers until the quotient is no more felt."""
    above = below = 1
    quotient = 1.0
    for k in range(1, count + 1):
        if quotient > _NO_DIFFERENCE:
            above, below = above * (zeros - k + 1) // k, below * (count - k + 1) // k
            quotient = above / below
        yield quotient


def majorities(ballots: Iterable[tuple[Hashable, float] | None]) -> Iterator[float]:
    """Of each prefix: the mean score over the (answer, score) pairs tied for most frequent; 0 while nobody has answered.

    None stands for a rollout without an answer or without the score.
    """
    counts: Counter[tuple[Hashable, float]] = Counter()
    most, tied = 0, RunningMean()
    for ballot in ballots:
        if ballot is not None:
            counts[ballot] += 1
            if counts[ballot] > most:
                most, tied = counts[ballot], RunningMean()
            if counts[ballot] == most:
                tied.add(ballot[1])
        yield tied.value() if most else 0.0


def mean_by_k(series: Iterable[Iterable[float]], deepest: int, *, hold: bool) -> list[float | None]:
    """The mean over tasks of their statistic at each k = 1 … `deepest`; None where no task has any.

    One series for each task. A task whose series has ended takes part with its last entry when `hold`, else no more.
    """
    waiting = sorted((array("d", s) for s in series), key=len, reverse=True)
    ended = RunningMean()
    found: list[float | None] = []
    for k in range(1, deepest + 1):
        while waiting and len(waiting[-1]) < k:
            last = waiting.pop()[-1:]
            if hold and last:
                ended.add(last[0])
        found.append(ended.value([s[k - 1] for s in waiting]) if waiting or ended.count else None)
    return found
