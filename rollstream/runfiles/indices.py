"""Task and rollout indices (platform.md B5).

Invariant: every (task, rollout) is given out once, and a task index never means two things: rows that bring their own
index and rows that are numbered may only meet in one file when their numbers stay apart.
"""

from __future__ import annotations

from hashlib import blake2b

from schemas.errors import DataError
from schemas.rows import ROLLOUT_ID, TASK_INDEX

_TEXT_DIGEST_BYTES = 16
"""Texts are told apart by 128 bits of hash: two of a billion collide with probability 1e-21."""


class Indices:
    """Numbers rows in the order they are given; `tasks` is the number of rollouts of each task so far."""

    def __init__(self) -> None:
        self.tasks: dict[int, int] = {}
        self._numbered: dict[bytes, int] = {}
        self._own: set[int] = set()
        self._ids: dict[str, int] = {}

    def task(self, own: int | None, text: bytes) -> int:
        """Task index of a row with this text (without its line terminator) and perhaps an index of its own.

        Raises `DataError` when the index is taken by the other kind.
        """
        if own is not None:
            if own < len(self._numbered):
                raise DataError(f"its {TASK_INDEX} {own} is the number given to an earlier row without one; {_ADVICE}")
            self._own.add(own)
            return own
        digest = blake2b(text, digest_size=_TEXT_DIGEST_BYTES).digest()
        index = self._numbered.setdefault(digest, len(self._numbered))
        if index in self._own:
            raise DataError(f"it has no {TASK_INDEX}, and its number would be {index}, which an earlier row brings; {_ADVICE}")
        return index

    def claim_id(self, rollout_id: str | None, task: int) -> None:
        """A row brings an id for its rollout; raises `DataError` when a row of another task brought the same."""
        if rollout_id is not None and self._ids.setdefault(rollout_id, task) != task:
            raise DataError(f"its {ROLLOUT_ID} {rollout_id!r} is that of an earlier row; ids must be unique")

    def rollouts(self, task: int, count: int) -> int:
        """First of `count` new rollout indices of a task; they go on from row to row."""
        first = self.tasks.get(task, 0)
        self.tasks[task] = first + count
        return first


_ADVICE = f"give every row a {TASK_INDEX}, or none"
