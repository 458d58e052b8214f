"""Which rollouts a partition of `prompts` has lately admitted.

Owns the first of two places where a duplicate dispatch is caught (the sink is the second). A task's records share a
partition, so a window for each partition is enough. Invariant: bounded, to `WINDOW` rollouts of each partition that this
worker has. A partition that is opened, as after a rebalance, starts afresh: what is known then are the rollouts of those of
the last `REPLAY` offsets below the committed one that hold a prompt, and of records finished beyond it. A duplicate of
what is older passes here, is played again, and is caught by the one-file sink.
"""

from __future__ import annotations

from collections import OrderedDict

from schemas.identity import RolloutRef

WINDOW = 50_000
"""Rollouts remembered for each partition, about 7 MB."""

REPLAY = 5_000
"""Offsets below the committed one that are read again when a partition is opened: about 0.15 s of work. Fewer records where the
log has gaps (control records of transactions); more rollouts than records where a prompt asks for several."""


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
        """Drop what is known of a partition: it is about to be read from an earlier offset, or belongs to another worker."""
        self._by_partition.pop(partition, None)
