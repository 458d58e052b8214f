"""What differs between two scorings (platform.md C5).

Invariant: every rollout of either scoring is counted once, under its environment: compared, or only in one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rollstream.diffing.scoring import Entry, Rollout, Scoring


class Direction(StrEnum):
    """What became of a rollout from the first scoring to the second.

    `VERDICT`: its reward is the same, what the verifier says beside it is not. `LOST` and `RECOVERED`: it had a reward and has
    none, or the reverse.
    """

    SAME = "same"
    UP = "up"
    DOWN = "down"
    VERDICT = "verdict"
    LOST = "lost"
    RECOVERED = "recovered"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Change:
    """A rollout that differs. `verdict` are the fields that both lines have and that differ, with both values."""

    rollout: Rollout
    direction: Direction
    before: Entry
    after: Entry
    verdict: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def delta(self) -> float | None:
        """Change of the reward; None when one of the two is missing."""
        a, b = self.before.reward, self.after.reward
        return None if a is None or b is None else b - a

    def as_json(self) -> dict[str, Any]:
        """A line of the report."""
        who: dict[str, Any] = {"environment": self.after.environment, "run_id": self.rollout.run}
        who |= {"_ng_task_index": self.rollout.task, "_ng_rollout_index": self.rollout.rollout}
        rewards = {"reward": [self.before.reward, self.after.reward], "delta": self.delta}
        failures = {"failure": [self.before.failure, self.after.failure]} if self.before.failure or self.after.failure else {}
        verdict = {name: list(values) for name, values in self.verdict.items()}
        return {**who, "direction": self.direction, **rewards, **failures, "verdict": verdict} | {
            "source": [self.before.source, self.after.source]
        }


@dataclass(slots=True)
class Totals:
    """The rollouts of one environment. The sums are over those that have a reward in both scorings."""

    directions: Counter[Direction] = field(default_factory=Counter)
    only_first: int = 0
    only_second: int = 0
    rewarded: int = 0
    before: float = 0.0
    after: float = 0.0

    @property
    def compared(self) -> int:
        return self.directions.total()

    def add(self, change: Change) -> None:
        self.directions[change.direction] += 1
        if change.before.reward is not None and change.after.reward is not None:
            self.rewarded += 1
            self.before += change.before.reward
            self.after += change.after.reward

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        n = self.rewarded
        means = {"mean": [self.before / n, self.after / n], "delta": (self.after - self.before) / n} if n else {}
        counts = {str(d): self.directions[d] for d in Direction}
        return {"compared": self.compared, **counts, "only_first": self.only_first, "only_second": self.only_second, **means}


class Comparison:
    """Two scorings side by side. Runs count only when one of the scorings holds several."""

    def __init__(self, first: Scoring, second: Scoring) -> None:
        self.first, self.second = first, second
        several = max(len(first.runs), len(second.runs)) > 1
        self._before = first.entries if several else _without_runs(first)
        self._after = second.entries if several else _without_runs(second)

    def totals(self) -> dict[str, Totals]:
        """By environment, in order of their names."""
        found: dict[str, Totals] = {}
        for change in self._all():
            found.setdefault(change.after.environment, Totals()).add(change)
        for rollout, entry in self._before.items():
            if rollout not in self._after:
                found.setdefault(entry.environment, Totals()).only_first += 1
        for rollout, entry in self._after.items():
            if rollout not in self._before:
                found.setdefault(entry.environment, Totals()).only_second += 1
        return dict(sorted(found.items()))

    def changes(self) -> Iterator[Change]:
        """The rollouts that differ, by run, task and rollout."""
        unchanged = (Direction.SAME, Direction.FAILED)
        yield from (change for change in self._all() if change.direction not in unchanged)

    def _all(self) -> Iterator[Change]:
        for rollout in sorted(self._before.keys() & self._after.keys()):
            yield _change(rollout, self._before[rollout], self._after[rollout])


def _without_runs(scoring: Scoring) -> dict[Rollout, Entry]:
    return {rollout._replace(run=""): entry for rollout, entry in scoring.entries.items()}


def _change(rollout: Rollout, before: Entry, after: Entry) -> Change:
    shared = before.fields.keys() & after.fields.keys()
    verdict = {name: (before.fields[name], after.fields[name]) for name in sorted(shared) if _differs(before, after, name)}
    return Change(rollout, _direction(before.reward, after.reward, verdict), before, after, verdict)


def _differs(before: Entry, after: Entry, name: str) -> bool:
    a, b = before.fields[name], after.fields[name]
    return bool(a != b) or isinstance(a, bool) != isinstance(b, bool)


def _direction(before: float | None, after: float | None, verdict: Mapping[str, Any]) -> Direction:
    if before is None or after is None:
        return Direction.FAILED if before is after else Direction.RECOVERED if before is None else Direction.LOST
    if before != after:
        return Direction.UP if after > before else Direction.DOWN
    return Direction.VERDICT if verdict else Direction.SAME
