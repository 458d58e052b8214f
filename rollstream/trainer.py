"""Scored rollouts for a trainer: a typed asynchronous iterator whose owner decides when offsets are committed.

    async with ScoredRollouts(connection, group="grpo", run="night-7") as stream:
        async for batch in stream.batches(256, timeout_s=30):
            train(batch)
            await stream.commit()

Invariants: only committed records are seen; an offset is committed only for what was yielded, and only while the partition
is ours; a batch never holds rollouts of a partition that was lost before the batch was handed out. What was yielded and not
committed when a partition is lost goes to its next owner again, so a trainer that must not learn from one rollout twice
looks at what `commit` returns.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Self

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from rollstream.scored import Resolver, ScoredRollout, claim_resolver, read_scored
from rollstream.settings.model import Claims
from schemas import headers
from schemas.errors import DataError, InfrastructureError
from schemas.topics import SCORED, Topics
from services.runtime.admin import AdminError, partitions_of, set_committed
from services.runtime.connection import Connection
from services.runtime.record import ConsumerRecord

Start = Literal["earliest", "latest"] | datetime | Mapping[int, int]
"""Where to begin: an end of the topic, a time (with its zone), or an offset for each partition."""

OnUnreadable = Literal["raise", "skip"]

_FETCH_RECORDS = 500
_FETCH_BYTES = 4 << 20
_POLL_S = 0.5
"""Longest wait for the broker before deadlines are looked at again."""

START_TIMEOUT_S = 10.0
_SESSION_TIMEOUT_MS = 30_000
"""A trainer's step may hold the event loop for seconds; heartbeats have to survive that."""

_POLL_INTERVAL_MS = 24 * 3_600_000
"""Between two polls lies a training step. The session timeout notices a trainer that is gone."""


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit did.

    `lost` are partitions of which something was yielded that could not be committed: another member has them now and is
    given those rollouts again.
    """

    offsets: Mapping[int, int] = field(default_factory=dict)
    lost: frozenset[int] = frozenset()


@dataclass(slots=True)
class _Held:
    """A partition that is ours: the offset after the last yielded record, and the last one committed (None: neither)."""

    yielded: int | None = None
    committed: int | None = None


class ScoredRollouts:
    """Scored rollouts of one pipeline; an async context manager and an async iterator of `ScoredRollout`.

    With a `group`, members share the partitions and begin where the group committed, or at `start` where it never did.
    `rewind=True` moves the whole group to `start` first; it must have no member then. Without a `group` the stream reads
    all partitions from `start` and commits nothing. `run` leaves the rollouts of other runs out. `on_unreadable` says what
    becomes of a record that cannot be read: `raise` ends the iteration with a `DataError` that names its place (iterating
    again goes on after it), `skip` passes over it and adds to `skipped`. `resolve` fetches lines that travel by reference;
    by default from `claims_url`, by default the folder that workers on this machine use.
    """

    def __init__(
        self,
        connection: Connection,
        topics: Topics | None = None,
        *,
        group: str | None = None,
        run: str | None = None,
        start: Start = "earliest",
        rewind: bool = False,
        on_unreadable: OnUnreadable = "raise",
        resolve: Resolver | None = None,
        claims_url: str | None = None,
    ) -> None:
        if isinstance(start, datetime) and start.tzinfo is None:
            raise ValueError(f"start={start!r} has no time zone; write datetime(..., tzinfo=UTC) or .astimezone()")
        if rewind and group is None:
            raise ValueError("rewind moves a group; without a group a stream always begins at start")
        self.skipped = 0
        self._connection = connection
        self._topic = (topics or Topics()).name(SCORED)
        self._group = group
        self._run = None if run is None else run.encode()
        self._start = start
        self._rewind = rewind
        self._on_unreadable = on_unreadable
        self._resolve = resolve or claim_resolver(claims_url or Claims().location)
        self._consumer: AIOKafkaConsumer | None = None
        self._buffer: deque[ConsumerRecord] = deque()
        self._held: dict[int, _Held] = {}
        self._before: dict[int, _Held] = {}
        self._epochs: dict[int, int] = {}
        self._lost: set[int] = set()
        self._broken: BaseException | None = None

    async def __aenter__(self) -> Self:
        partitions = await self._partitions()
        self._consumer = consumer = self._new_consumer(self._group)
        try:
            await asyncio.wait_for(consumer.start(), START_TIMEOUT_S)
            if self._rewind:
                await self._move_group(partitions)
            if self._group is None:
                consumer.assign(partitions)
                await self._begin(partitions)
            else:
                consumer.subscribe([self._topic], listener=_Listener(self))
        except (KafkaError, TimeoutError) as e:
            await self.close()
            raise InfrastructureError(f"no Kafka broker answers at {self._connection.bootstrap_servers}: {e!r}") from e
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave the group. What was yielded and not committed will be yielded again."""
        consumer, self._consumer = self._consumer, None
        self._buffer.clear()
        if consumer is not None:
            await asyncio.wait_for(consumer.stop(), START_TIMEOUT_S)

    def __aiter__(self) -> AsyncIterator[ScoredRollout]:
        return self._forever()

    async def next(self, timeout_s: float | None = None) -> ScoredRollout | None:
        """The next rollout, or None when none came within `timeout_s` seconds (None: wait for as long as it takes).

        Raises `DataError` for a record that cannot be read (see `on_unreadable`), `InfrastructureError` when its line
        cannot be fetched; the latter may be tried again.
        """
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        while True:
            while self._buffer:
                found = await self._take()
                if found is not None:
                    return found
            left = _POLL_S if deadline is None else min(_POLL_S, deadline - loop.time())
            await self._fetch(max(left, 0.0))
            if left <= 0 and not self._buffer:
                return None

    async def batches(self, size: int, timeout_s: float | None = None) -> AsyncIterator[list[ScoredRollout]]:
        """Lists of `size` rollouts; of fewer, but at least one, when `timeout_s` seconds have passed since the last list.

        Rollouts of a partition that is lost while a list fills are taken out of it: they are another member's now. With
        nothing at all in the time given, waits on.
        """
        loop = asyncio.get_running_loop()
        batch: list[tuple[int, ScoredRollout]] = []
        while True:
            deadline = None if timeout_s is None else loop.time() + timeout_s
            while len(batch) < size:
                left = None if deadline is None else deadline - loop.time()
                found = await self.next(None if left is None else max(0.0, left))
                batch = [(epoch, r) for epoch, r in batch if epoch == self._epoch(r.place.partition)]
                if found is None:
                    break
                batch.append((self._epoch(found.place.partition), found))
            if batch:
                ready, batch = [r for _, r in batch], []
                yield ready

    async def commit(self, upto: ScoredRollout | None = None) -> Committed:
        """Commit everything yielded so far, or, in the partition of `upto`, everything up to and including it.

        Returns what was committed and which partitions were lost since the last commit. Raises `InfrastructureError` when
        the broker does not take it; nothing is committed then. With no group, commits nothing.
        """
        lost, self._lost = frozenset(self._lost), set()
        if self._group is None:
            return Committed()
        if upto is None:
            due = {p: h.yielded for p, h in self._held.items() if h.yielded is not None and h.yielded != h.committed}
        else:
            held = self._held.get(upto.place.partition)
            if held is None or held.yielded is None or held.yielded <= upto.place.offset:
                return Committed(lost=lost | {upto.place.partition})
            due = {upto.place.partition: upto.place.offset + 1}
        if not due:
            return Committed(lost=lost)
        try:
            await self._started().commit({TopicPartition(self._topic, p): o for p, o in due.items()})
        except (CommitFailedError, IllegalStateError):  # the group has moved on without us
            return Committed(lost=lost | frozenset(due))
        except KafkaError as e:
            self._lost |= lost
            raise InfrastructureError(f"offsets of group {self._group} were not committed: {e!r}") from e
        for partition, offset in due.items():
            if partition in self._held:
                self._held[partition].committed = offset
        return Committed(due, lost)

    async def _forever(self) -> AsyncIterator[ScoredRollout]:
        while True:
            found = await self.next()
            if found is not None:
                yield found

    async def _take(self) -> ScoredRollout | None:
        """The first buffered record, if it is one to yield. It leaves the buffer when its line is at hand, not before."""
        record = self._buffer[0]
        rollout = None
        try:
            if self._is_wanted(record):
                rollout = await read_scored(record, self._resolve)
        except DataError as e:
            self._advance(record)
            if self._on_unreadable == "raise":
                raise DataError(f"{record.topic}/{record.partition}/{record.offset} cannot be read: {e}") from e
            self.skipped += 1
            return None
        return rollout if self._advance(record) else None

    def _is_wanted(self, record: ConsumerRecord) -> bool:
        run = headers.value(record.headers, headers.RUN)
        return self._run is None or run == self._run

    def _advance(self, record: ConsumerRecord) -> bool:
        """Count `record` as yielded; False when its partition was lost while its line was fetched."""
        if not self._buffer or self._buffer[0] is not record:
            return False
        self._buffer.popleft()
        self._held.setdefault(record.partition, _Held()).yielded = record.offset + 1
        return True

    async def _fetch(self, timeout_s: float) -> None:
        if self._broken is not None:
            broken, self._broken = self._broken, None
            raise InfrastructureError(f"the group's start could not be found: {broken!r}") from broken
        try:
            found = await self._started().getmany(timeout_ms=max(1, int(timeout_s * 1000)), max_records=_FETCH_RECORDS)
        except KafkaError as e:
            raise InfrastructureError(f"reading {self._topic} failed: {e!r}") from e
        for partition, records in found.items():
            held = self._held.get(partition.partition)
            # A fetch that straddles a rebalance may hold records of a partition that has gone, or from before its seek.
            if self._group is None or held is not None:
                self._buffer.extend(r for r in records if held is None or r.offset >= (held.yielded or 0))

    def _epoch(self, partition: int) -> int:
        return self._epochs.get(partition, 0)

    # Rebalance

    def _revoked(self) -> None:
        """The group takes all partitions back; most of them will come again."""
        self._buffer.clear()
        self._before |= self._held
        self._held = {}

    async def _assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on where we were in the partitions that nobody else had in between; begin in the others."""
        consumer = self._started()
        fresh = []
        for tp in sorted(partitions):
            before = self._before.pop(tp.partition, None)
            committed = await consumer.committed(tp)
            self._held[tp.partition] = held = _Held(committed, committed)
            if before is not None and before.yielded is not None and before.committed == committed:
                held.yielded = before.yielded
                consumer.seek(tp, before.yielded)
            else:
                if before is not None:
                    self._lose(tp.partition, before)
                if committed is None:
                    fresh.append(tp)
        for partition, before in self._before.items():
            self._lose(partition, before)
        self._before = {}
        if fresh:
            await self._begin(fresh)

    def _lose(self, partition: int, held: _Held) -> None:
        self._epochs[partition] = self._epoch(partition) + 1
        if held.yielded != held.committed:
            self._lost.add(partition)

    async def _begin(self, partitions: list[TopicPartition]) -> None:
        consumer = self._started()
        offsets = await self._offsets_of_start(partitions)
        for tp, offset in offsets.items():
            consumer.seek(tp, offset)
        if self._group is not None and self._start == "latest":
            # Written down at once: the next owner would else begin at an end that lies later, and records be lost between.
            await consumer.commit(offsets)
            self._held |= {tp.partition: _Held(offset, offset) for tp, offset in offsets.items()}

    async def _offsets_of_start(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        start, consumer = self._start, self._started()
        if isinstance(start, Mapping):
            first = await consumer.beginning_offsets(partitions)
            return {tp: start.get(tp.partition, first[tp]) for tp in partitions}
        if start == "earliest":
            return dict(await consumer.beginning_offsets(partitions))
        ends = dict(await consumer.end_offsets(partitions))
        if start == "latest":
            return ends
        milliseconds = int(start.timestamp() * 1000)
        found = await consumer.offsets_for_times(dict.fromkeys(partitions, milliseconds))
        return {tp: ends[tp] if found[tp] is None else found[tp].offset for tp in partitions}

    async def _move_group(self, partitions: list[TopicPartition]) -> None:
        offsets = await self._offsets_of_start(partitions)
        try:
            await set_committed(self._connection, str(self._group), offsets)
        except AdminError as e:
            raise InfrastructureError(
                f"group {self._group} was not rewound; the broker allows it only while the group has no member", detail=str(e)
            ) from e

    async def _partitions(self) -> list[TopicPartition]:
        found = await partitions_of(self._connection, [self._topic], timeout_s=START_TIMEOUT_S)
        if not found:
            where = self._connection.bootstrap_servers
            raise InfrastructureError(f"there is no topic {self._topic} at {where}: has a worker run with this prefix?")
        return found

    def _new_consumer(self, group: str | None) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            **self._connection.kwargs(),
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            max_partition_fetch_bytes=_FETCH_BYTES,
            session_timeout_ms=_SESSION_TIMEOUT_MS,
            max_poll_interval_ms=_POLL_INTERVAL_MS,
        )

    def _started(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            raise RuntimeError("use ScoredRollouts as a context manager: async with ScoredRollouts(...) as stream")
        return self._consumer


class _Listener(ConsumerRebalanceListener):
    """Tells the stream about rebalances; aiokafka only logs what a listener raises, so errors are kept for the next read."""

    def __init__(self, stream: ScoredRollouts) -> None:
        self._stream = stream

    async def on_partitions_revoked(self, _revoked: object) -> None:
        self._stream._revoked()  # noqa: SLF001 - one class in two parts

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        try:
            await self._stream._assigned(assigned)  # noqa: SLF001
        except (KafkaError, InfrastructureError) as e:
            self._stream._broken = e  # noqa: SLF001
