"""Rollouts that are scored together, until they are (design §5, "score a group").

Owns who belongs to a group and when it is closed: when every rollout of the task has come or is known never to come, when
its deadline has passed, or when nothing else would go on. Invariants:

- A member's offset stays open until the outputs of its group are in a commit, so whatever is killed, it is read again.
- A waiting member costs an open offset and a few hundred bytes; its record is on the shelf.
- What is bounded (groups, bytes, open offsets of a partition) makes the oldest group close early and never makes the stage
  wait for what it does not read.
- A deadline passes by the clock and only once the log has been read that far: a worker that was away closes no group whose
  members were in the log all the time.
"""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from schemas.errors import Outcome
from services.runtime.record import HELD, ConsumerRecord, Held, Outputs, Together
from services.runtime.shelf import Shelf

Key = tuple[str, str]
"""Run and task."""

_REMEMBERED = 10_000
"""Closed groups that are remembered, to know what comes late or twice: more than are closed between a member and its late
sibling, unless the deadline is short."""


@dataclass(frozen=True, slots=True)
class GroupBounds:
    """`timeout_s` is how long a group waits, from when its first member was written; the rest bounds what waits at once."""

    timeout_s: float = 10_800.0
    max_groups: int = 20_000
    memory_bytes: int = 64 << 20
    disk_bytes: int = 4 << 30


@dataclass(frozen=True, slots=True)
class Arrival:
    """One rollout of a group of `size` as it comes to the verifier; `absent` is why it will never be scored, or empty."""

    key: Key
    index: int
    attempt: int
    size: int
    absent: str = ""


class Why(StrEnum):
    """Why a group was closed."""

    COMPLETE = "complete"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    ROOM = "room"


@dataclass(frozen=True, slots=True)
class Closed:
    """A group to be scored: `present` in order of arrival, `superseded` by later attempts of their rollouts.

    `absent` are the rollouts known never to come, with the reason; `before` is how many of the `size` came so much earlier
    that they are closed already; `unknown` is how many nobody has heard of.
    """

    key: Key
    size: int
    why: Why
    present: tuple[ConsumerRecord, ...]
    superseded: tuple[ConsumerRecord, ...] = ()
    absent: Mapping[int, str] = field(default_factory=dict)
    before: int = 0
    unknown: int = 0


Score = Callable[[Closed], Awaitable[Mapping[int, Outputs]]]
"""The outputs of each present and superseded record, by offset."""


@dataclass(slots=True)
class _Group:
    key: Key
    number: int
    partition: int
    until: float
    size: int
    whole: int = 1
    offsets: list[int] = field(default_factory=list)
    slots: dict[int, _Slot] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Slot:
    """A rollout that has come: its offset and attempt, or why it never will."""

    offset: int
    attempt: int
    absent: str


class Groups:
    """The groups that wait in one worker (a `services.runtime.record.Keeper`). `now` gives epoch seconds."""

    def __init__(
        self, bounds: GroupBounds, shelf: Shelf, score: Score, is_cancelled: Callable[[str], bool], now: Callable[[], float]
    ) -> None:
        self._bounds = bounds
        self._shelf = shelf
        self._score = score
        self._is_cancelled = is_cancelled
        self._now = now
        self._numbers = itertools.count()
        self._waiting: dict[int, dict[Key, _Group]] = {}
        self._runs: dict[int, Counter[str]] = {}
        self._closed: OrderedDict[tuple[int, Key], dict[int, int]] = OrderedDict()
        self._read_to: dict[int, float] = {}

    @property
    def count(self) -> int:
        """Groups that wait."""
        return sum(len(groups) for groups in self._waiting.values())

    @property
    def full(self) -> bool:
        """Whether no further group should be begun."""
        return self.count >= self._bounds.max_groups or self._shelf.full

    def add(self, record: ConsumerRecord, arrival: Arrival) -> Held | Together | Outcome:
        """Take a record in: it is held, or its group is complete, or it is a repetition (`DUPLICATE`, `SUPERSEDED`)."""
        self._note_time(record)
        earlier = self._attempt_of(record.partition, arrival)
        if earlier is not None and earlier >= arrival.attempt:
            return Outcome.DUPLICATE if earlier == arrival.attempt else Outcome.SUPERSEDED
        group = self._group(record, arrival)
        group.size = max(group.size, self._left(record.partition, arrival))
        group.whole = max(group.whole, arrival.size)
        group.offsets.append(record.offset)
        group.slots[arrival.index] = _Slot(record.offset, arrival.attempt, arrival.absent)
        if not arrival.absent:
            self._shelf.put(group.number, record)
        return self._close(group, Why.COMPLETE) if len(group.slots) >= group.size else HELD

    def closed_badly(self, closed: Closed) -> None:
        """The group ended without scores: its rollouts may come again."""
        for record in closed.present[:1]:
            self._closed.pop((record.partition, closed.key), None)

    def forget(self, partition: int) -> None:
        for group in self._waiting.pop(partition, {}).values():
            self._shelf.drop(group.number)
        self._runs.pop(partition, None)
        for place in [p for p in self._closed if p[0] == partition]:
            del self._closed[place]
        self._read_to.pop(partition, None)

    def remember(self, record: ConsumerRecord) -> None:
        self._note_time(record)

    def due(self, partition: int, *, caught_up: bool, stuck: bool) -> Together | None:
        groups = self._waiting.get(partition)
        if not groups:
            return None
        cancelled = self._cancelled(partition)
        if cancelled is not None:
            return self._close(cancelled, Why.CANCELLED)
        oldest = next(iter(groups.values()))
        if self._now() >= oldest.until and (caught_up or stuck or self._read_to.get(partition, 0.0) >= oldest.until):
            return self._close(oldest, Why.DEADLINE)
        return self._close(oldest, Why.ROOM) if stuck or self.full else None

    def _cancelled(self, partition: int) -> _Group | None:
        """A group of a cancelled run."""
        runs = [run for run, count in self._runs[partition].items() if count and self._is_cancelled(run)]
        return next((g for (run, _), g in self._waiting[partition].items() if run in runs), None) if runs else None

    def _group(self, record: ConsumerRecord, arrival: Arrival) -> _Group:
        groups = self._waiting.setdefault(record.partition, {})
        group = groups.get(arrival.key)
        if group is None:
            since = record.timestamp / 1000 if record.timestamp > 0 else self._now()
            until = since + self._bounds.timeout_s
            group = groups[arrival.key] = _Group(arrival.key, next(self._numbers), record.partition, until, 1)
            self._runs.setdefault(record.partition, Counter())[arrival.key[0]] += 1
        return group

    def _attempt_of(self, partition: int, arrival: Arrival) -> int | None:
        """The attempt of this rollout that is here already, waiting or closed."""
        group = self._waiting.get(partition, {}).get(arrival.key)
        waiting = group.slots.get(arrival.index) if group is not None else None
        if waiting is not None:
            return waiting.attempt
        return self._closed.get((partition, arrival.key), {}).get(arrival.index)

    def _left(self, partition: int, arrival: Arrival) -> int:
        """How many members the group can still get: those that came after it was closed are a group of their own."""
        gone = self._closed.get((partition, arrival.key), {})
        return max(1, arrival.size - len(gone.keys() - {arrival.index}))

    def _close(self, group: _Group, why: Why) -> Together:
        records = self._shelf.take(group.number)
        del self._waiting[group.partition][group.key]
        self._runs[group.partition][group.key[0]] -= 1
        self._remember_closed(group)
        counted = {slot.offset for slot in group.slots.values()}
        absent = {index: slot.absent for index, slot in group.slots.items() if slot.absent}
        closed = Closed(
            group.key,
            group.whole,
            why,
            present=tuple(r for r in records if r.offset in counted),
            superseded=tuple(r for r in records if r.offset not in counted),
            absent=absent,
            before=group.whole - group.size,
            unknown=group.size - len(group.slots),
        )
        return Together(tuple(group.offsets), lambda: self._score(closed), {r.offset: r for r in records})

    def _remember_closed(self, group: _Group) -> None:
        place = (group.partition, group.key)
        attempts = {index: slot.attempt for index, slot in group.slots.items()}
        self._closed[place] = self._closed.pop(place, {}) | attempts
        if len(self._closed) > _REMEMBERED:
            self._closed.popitem(last=False)

    def _note_time(self, record: ConsumerRecord) -> None:
        partition, at = record.partition, record.timestamp / 1000
        if at > self._read_to.get(partition, 0.0):
            self._read_to[partition] = at
