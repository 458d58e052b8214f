"""Which trajectories of the log are scored again (platform.md C5).

Invariant: a record is taken or left by what it says of itself and by the failures that name its place, never by what was taken
before, so every process that works on one scoring takes the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from rollstream.ledger.reader import LogReader
from schemas import codec, headers, jsontext
from schemas.errors import DataError, FailureClass, RolloutError
from schemas.events import Failure, Trajectory
from schemas.identity import Place
from schemas.topics import FAILURES, TRAJECTORIES, Topics
from services.runtime.connection import Connection
from services.runtime.record import ConsumerRecord, TopicPartition


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of `trajectories`. What is empty or None does not narrow it.

    `since` (inclusive) and `until` (exclusive) are about when a trajectory was written. `environment` is a variant's name.
    `model` is the policy as its response names it. `failure_class` takes what failed so at its verifier.
    """

    run: str = ""
    environment: str = ""
    model: str = ""
    since: datetime | None = None
    until: datetime | None = None
    failure_class: FailureClass | None = None

    def as_json(self) -> dict[str, str]:
        """What narrows it."""
        fields = {"run": self.run, "environment": self.environment, "model": self.model, "failure_class": self.failure_class}
        times = {name: value.isoformat() for name, value in (("since", self.since), ("until", self.until)) if value}
        return {**{k: str(v) for k, v in fields.items() if v}, **times}


@dataclass(frozen=True, slots=True)
class Reach:
    """Where a slice lies in the log: for each partition of `trajectories`, the first offset and the one after the last.

    `failed` are the places of trajectories that ended in the slice's class of failure; None: those of any end.
    """

    first: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]
    failed: frozenset[Place] | None = None


@dataclass(slots=True)
class Survey:
    """What a slice holds: trajectories by environment, and the last offset of each partition that has any of them."""

    count: Counter[str] = field(default_factory=Counter)
    last: dict[TopicPartition, int] = field(default_factory=dict)

    def note(self, record: ConsumerRecord, event: Trajectory) -> None:
        self.count[event.environment] += not event.absent
        self.last[TopicPartition(record.topic, record.partition)] = record.offset


@dataclass(frozen=True, slots=True)
class Taken:
    """Decides on records."""

    wanted: Slice
    reach: Reach

    def event(self, record: ConsumerRecord) -> Trajectory | None:
        """The trajectory in a record of the slice; None for what is not in it."""
        tp = TopicPartition(record.topic, record.partition)
        inside = self.reach.first.get(tp, 0) <= record.offset < self.reach.end.get(tp, 0)
        if not inside or not self._in_time(record) or not self._of_run(record):
            return None
        try:
            event = codec.decode(record.value or b"", Trajectory)
        except DataError:
            return None  # it was never a rollout; when it came, it was recorded as a failure
        return event if self._of_kind(record, event) else None

    def _in_time(self, record: ConsumerRecord) -> bool:
        seconds = record.timestamp / 1000
        since, until = self.wanted.since, self.wanted.until
        return (since is None or seconds >= since.timestamp()) and (until is None or seconds < until.timestamp())

    def _of_run(self, record: ConsumerRecord) -> bool:
        return not self.wanted.run or headers.value(record.headers, headers.RUN) == self.wanted.run.encode()

    def _of_kind(self, record: ConsumerRecord, event: Trajectory) -> bool:
        if self.wanted.environment and event.environment != self.wanted.environment:
            return False
        if event.absent:  # says to a group that it need not wait
            return True
        if self.wanted.model and _model(event) != self.wanted.model:
            return False
        return self.reach.failed is None or Place(record.topic, record.partition, record.offset) in self.reach.failed


async def survey(connection: Connection, topics: Topics, taken: Taken) -> Survey:
    """What the slice holds: one reading of it."""
    found = Survey()

    def note(record: ConsumerRecord) -> None:
        event = taken.event(record)
        if event is not None:
            found.note(record, event)

    async with LogReader(connection, [topics.name(TRAJECTORIES)]) as reader:
        await reader.read(taken.reach.end, taken.reach.first, note)
    return found


async def reach_of(connection: Connection, topics: Topics, wanted: Slice) -> Reach:
    """Where the slice lies now; raises `InfrastructureError` when the broker does not answer or there are no such topics."""
    trajectories, failures = topics.name(TRAJECTORIES), topics.name(FAILURES)
    async with LogReader(connection, [trajectories, failures]) as reader:
        end = await reader.ends([trajectories])
        first = await reader.starts([trajectories], None if wanted.since is None else int(wanted.since.timestamp() * 1000))
        if wanted.failure_class is None:
            return Reach(first, end)
        found: set[Place] = set()
        await reader.read(await reader.ends([failures]), {}, _noting(found, wanted))
        return Reach(first, end, frozenset(found))


def _noting(found: set[Place], wanted: Slice) -> Callable[[ConsumerRecord], None]:
    """Takes failures; those of the wanted class leave the place of their trajectory in `found`."""

    def note(record: ConsumerRecord) -> None:
        if wanted.run and headers.value(record.headers, headers.RUN) != wanted.run.encode():
            return
        try:
            event = codec.decode(record.value or b"", Failure)
        except RolloutError:
            return
        if event.failure_class == wanted.failure_class and event.place is not None:
            found.add(event.place)

    return note


def _model(event: Trajectory) -> str:
    """The policy as the response names it; empty when it lies elsewhere or names none."""
    try:
        response = jsontext.loads_lenient(event.response.data)
    except ValueError:
        return ""
    return str(response.get("model", "")) if isinstance(response, dict) else ""
