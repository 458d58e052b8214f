"""Which rollouts a pair of files already holds.

Invariant: of all records of one (run, rollout) exactly one is counted as its result; the others are told apart as
duplicates (seen before) and superseded (an earlier attempt than one already given up).

A rollout is kept as the 64-bit hash of its key and its attempt, about 100 bytes of dictionary (measured in
`tests/unit/sink/test_seen.py`). Two of a million rollouts share a hash with probability 3e-8; Python's hash is keyed
anew for each process, so nobody can choose ids that do.
"""

from __future__ import annotations

from schemas.errors import Outcome


class Seen:
    """Outcomes by rollout. Changes since the last `keep` can be taken back."""

    def __init__(self) -> None:
        self._scored: dict[int, int] = {}
        self._failed: dict[int, int] = {}
        self._adopted: set[int] = set()
        self._undo: list[tuple[dict[int, int], int, int | None]] = []

    def __len__(self) -> int:
        return len(self._scored)

    def result(self, key: bytes, attempt: int) -> Outcome:
        """Book a result: `SCORED` when it is the one that counts."""
        rollout = hash(key)
        first = self._scored.get(rollout)
        if first is not None:
            return Outcome.SUPERSEDED if attempt < first else Outcome.DUPLICATE
        if self._failed.get(rollout, -1) > attempt:
            return Outcome.SUPERSEDED
        self._set(self._scored, rollout, attempt)
        return Outcome.SCORED

    def failure(self, key: bytes, attempt: int) -> Outcome:
        """Book the failure of an attempt: `FAILED` when it is the first of that attempt or a later one."""
        rollout = hash(key)
        last = self._failed.get(rollout, -1)
        if attempt <= last:
            return Outcome.DUPLICATE if attempt == last else Outcome.SUPERSEDED
        self._set(self._failed, rollout, attempt)
        return Outcome.FAILED

    def adopt(self, line: bytes) -> None:
        """A line is in the files already, and the record that it was made of may come again."""
        self._adopted.add(hash(line))

    def disown(self, line: bytes) -> bool:
        """Whether `line` is one of the adopted; each is only once."""
        known = bool(self._adopted) and hash(line) in self._adopted
        if known:
            self._adopted.discard(hash(line))
        return known

    def keep(self) -> None:
        """What was booked is written."""
        self._undo.clear()

    def take_back(self) -> None:
        """What was booked since the last `keep` is not written."""
        while self._undo:
            table, rollout, old = self._undo.pop()
            if old is None:
                del table[rollout]
            else:
                table[rollout] = old

    def _set(self, table: dict[int, int], rollout: int, attempt: int) -> None:
        self._undo.append((table, rollout, table.get(rollout)))
        table[rollout] = attempt
