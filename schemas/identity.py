"""Who a rollout is: run, task, rollout, attempt.

Owns the rules for ids (platform.md A8, B5) and the ids of rows that bring none. Invariant: the same bytes at the same
place in the same topic always get the same identity, so a second delivery is the same task.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated

from pydantic import StringConstraints

from schemas.quick import quick

ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""platform.md A8: anything else is rejected, not sanitised. It also makes ids safe as file names."""

MAX_ID_LENGTH = 200
"""Ids become file names and record keys; 255 bytes is the usual limit of a file name, less our suffixes."""

Id = Annotated[str, StringConstraints(pattern=ID_PATTERN, max_length=MAX_ID_LENGTH)]

MAX_INDEX = 2**53
"""Largest task, rollout or attempt index: exact in every JSON reader, and well inside Avro's long."""

DEFAULT_RUN = "default"
"""The run of rows that name none (`kcat -P`)."""

SOLO = "solo-"
"""Ids of runs that bring their own workers (`rollstream run`) begin so. It stands in the id, which every record carries as a
header, because workers that are shared must leave such a run alone from its first record on, whenever they start."""

_ID = re.compile(ID_PATTERN)
_EXACT_SHIFT = 64 - 53
_OFFSET_BITS = 40
"""Task index of a bare row = partition << 40 | offset: below 2**53, hence exact in every JSON reader, for 8,192 partitions."""


@quick
@dataclass(frozen=True, slots=True)
class Place:
    """Where a record lies in the log."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


@quick
@dataclass(frozen=True, slots=True)
class RolloutRef:
    """Identity of one attempt of one rollout; (run_id, task_index, rollout_index) never changes between attempts.

    `explicit_id` is the row's own `_ng_rollout_id` (checked where rows enter), or empty.
    """

    run_id: str
    task_id: str
    task_index: int
    rollout_index: int
    attempt: int = 0
    group_size: int = 1
    explicit_id: str = ""

    @property
    def rollout_id(self) -> str:
        """The A8 id: the explicit id or `TASK-ROLLOUT`, with `-aN` for attempt N > 0. Unique within a run."""
        base = self.explicit_id or f"{self.task_index}-{self.rollout_index}"
        return f"{base}-a{self.attempt}" if self.attempt else base

    @property
    def key(self) -> bytes:
        """Record key on the topics keyed by rollout."""
        return f"{self.run_id}/{self.task_index}-{self.rollout_index}".encode()

    @property
    def task_key(self) -> bytes:
        """Record key on the topics keyed by task: a task's rollouts share a partition, so groups and duplicates meet."""
        return f"{self.run_id}/{self.task_id}".encode()


def is_id(text: str) -> bool:
    """Whether `text` may be a run id or an explicit rollout id."""
    return len(text) <= MAX_ID_LENGTH and _ID.fullmatch(text) is not None


def is_index(value: object) -> bool:
    """Whether `value` may be a task, rollout or attempt index: an integer (no boolean) from 0 to `MAX_INDEX`."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INDEX


def task_id_at(place: Place) -> str:
    """Id of the task in a record that names none."""
    return f"{place.topic}-{place.partition}-{place.offset}"


def task_index_of(task_id: str) -> int:
    """Index of a task that has an id and no index: the same wherever its prompt lies, so a second one is a duplicate.

    53 bits of BLAKE2b: exact in every JSON reader, and two of a million tasks collide with odds of 1 in 18,000.
    """
    return int.from_bytes(blake2b(task_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()) >> _EXACT_SHIFT


def task_index_at(place: Place) -> int:
    """Index of the task in a record that names none."""
    return place.partition << _OFFSET_BITS | place.offset
