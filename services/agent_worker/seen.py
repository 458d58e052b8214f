"""Which rollouts a partition of `prompts` has lately admitted.

Owns the first of two places where a duplicate dispatch is caught (the sink is the second). A task's records share a
partition, so the window of one partition is enough. Invariant: bounded, and the same after a rebalance: a new owner reads
the last records below the committed offset again to fill it.
"""

from __future__ import annotations

from collections import OrderedDict

from schemas.identity import RolloutRef

WINDOW = 50_000
"""Rollouts remembered for each partition, about 7 MB."""

REPLAY = 5_000
"""Records below the committed offset that a new owner reads again: about 0.15 s of work."""


class Seen:
    """Identities admitted on each partition, the oldest forgotten first."""

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self._by_partition: dict[int, OrderedDict[int, None]] = {}

    def add(self, partition: int, ref: RolloutRef) -> bool:
        """Note a rollout; False when it was there already."""
        seen = self._by_partition.setdefault(partition, OrderedDict())
        key = hash((ref.run_id, ref.task_index, ref.rollout_index, ref.attempt))
        if key in seen:
            return False
        seen[key] = None
        if len(seen) > self._window:
            seen.popitem(last=False)
        return True

    def forget(self, partition: int) -> None:
        """Start a partition afresh: it is about to be read from an earlier offset."""
        self._by_partition.pop(partition, None)
