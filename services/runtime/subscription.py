"""FastStream and aiokafka under a stage: one batch subscriber, its consumer, its rebalance callbacks.

Owns the translation between FastStream's subscriber and a `Stage`. Invariants:

- A record reaches the stage undecoded and in the order of its partition; nothing in between can reject it (a header that is
  not UTF-8 would stop FastStream's own parser for the whole batch).
- No record is passed over. When a fetch fails, aiokafka drops what the same fetch had taken from other partitions, so the
  stage is told to read that again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiokafka
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import ConsumerStoppedError, IllegalStateError
from aiokafka.structs import OffsetAndMetadata
from faststream import AckPolicy
from faststream.kafka import KafkaBroker
from faststream.kafka.message import KafkaMessage

from services.runtime import header_names
from services.runtime.record import ConsumerRecord, TopicPartition
from services.runtime.stage import MAX_FETCH, Stage

_POLL_MS = 20
"""FastStream sleeps this long after an empty fetch, so it is the delay of an idle stage; a fetch that finds records ends at
once."""

_FETCH_RETRY_S = 1.0
"""After a fetch that failed. FastStream itself would wait for five seconds, or not at all."""

_MAX_POLL_INTERVAL_MS = 24 * 3_600_000
"""Fetching never waits on handling, so the interval says nothing about us; aiokafka must not throw us out over it."""

_FETCH_BYTES = 4 << 20
"""Per partition and fetch; a larger single record is still delivered."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Membership of the consumer group. Short timeouts: a killed worker's partitions move within seconds.

    `instance_id` makes membership static where replicas have stable names, so a quick restart moves nothing.
    """

    group: str
    session_timeout_s: float = 6.0
    heartbeat_s: float = 1.5
    instance_id: str | None = None


class Subscription(ConsumerRebalanceListener):
    """One stage's subscription to its topics."""

    def __init__(self, broker: KafkaBroker, stage: Stage, topics: Sequence[str], group: GroupSettings) -> None:
        self.group = group.group
        self._stage = stage
        header_names.install()
        self._subscriber: Any = broker.subscriber(
            *topics,
            batch=True,
            group_id=group.group,
            group_instance_id=group.instance_id,
            ack_policy=AckPolicy.MANUAL,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            listener=self,
            partition_assignment_strategy=[StickyPartitionAssignor],
            max_records=MAX_FETCH,
            batch_timeout_ms=_POLL_MS,
            max_partition_fetch_bytes=_FETCH_BYTES,
            max_poll_interval_ms=_MAX_POLL_INTERVAL_MS,
            session_timeout_ms=int(group.session_timeout_s * 1000),
            heartbeat_interval_ms=int(group.heartbeat_s * 1000),
            parser=_parse,
            decoder=_decode,
        )
        self._subscriber(self._handle)
        self._fetch_batch = self._subscriber.get_msg
        self._subscriber.get_msg = self._fetch  # type: ignore[method-assign]  # the one seam below FastStream's parser
        stage.attach(self)

    @property
    def running(self) -> bool:
        """Whether there is a consumer at work."""
        return self._subscriber.consumer is not None

    @property
    def consumer(self) -> Any:
        """The started subscriber's aiokafka consumer; raises `RuntimeError` before the start."""
        if self._subscriber.consumer is None:
            raise RuntimeError("the subscriber is not started")
        return self._subscriber.consumer

    # --- what the stage asks of its source ---

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop reading these partitions; those no longer assigned are left out."""
        self._each(partitions, "pause")

    def resume(self, *partitions: TopicPartition) -> None:
        """Read these partitions again; those no longer assigned are left out."""
        self._each(partitions, "resume")

    async def seek(self, partition: TopicPartition, offset: int | None) -> None:
        """Read on from `offset`, or from the first record there is."""
        try:
            if offset is None:
                await self.consumer.seek_to_beginning(partition)
            else:
                self.consumer.seek(partition, offset)
        except IllegalStateError:
            pass  # revoked in the meantime

    async def earliest(self, partition: TopicPartition) -> int:
        """The first offset that the log still has; 0 for a partition that was revoked in the meantime."""
        found: dict[TopicPartition, int] = await self.consumer.beginning_offsets([partition])
        return found.get(partition, 0)

    def end(self, partition: TopicPartition) -> int | None:
        """The offset behind the last record, as the latest fetch said; None before it, and for what was revoked."""
        try:
            found: int | None = self.consumer.highwater(partition)
        except (IllegalStateError, RuntimeError):
            return None
        return found

    async def commit(self, partition: TopicPartition, offset: int, metadata: str) -> None:
        """Commit through the group: refused by the broker when this member no longer has the partition."""
        await self.consumer.commit({partition: OffsetAndMetadata(offset, metadata)})

    # --- what FastStream and aiokafka call ---

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        await self._stage.revoked(revoked)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._stage.assign(assigned)

    async def _fetch(self, consumer: Any) -> Any:
        try:
            return await self._fetch_batch(consumer)
        except ConsumerStoppedError:
            raise
        except Exception as e:  # noqa: BLE001 - whatever it was, what it had taken must be read again
            await self._stage.refetch(e)
            await asyncio.sleep(_FETCH_RETRY_S)
            return ()

    async def _handle(self, records: Sequence[ConsumerRecord]) -> None:
        await self._stage.receive(records)

    def _each(self, partitions: Sequence[TopicPartition], verb: str) -> None:
        consumer = self._subscriber.consumer
        ours = [p for p in partitions if consumer is not None and p in consumer.assignment()]
        if ours:
            getattr(consumer, verb)(*ours)


async def _parse(records: tuple[aiokafka.ConsumerRecord[bytes, bytes], ...]) -> KafkaMessage:
    return KafkaMessage(raw_message=records, body=b"", headers={}, consumer=None)  # type: ignore[arg-type]


async def _decode(message: KafkaMessage) -> Sequence[ConsumerRecord]:
    raw: Any = message.raw_message  # a tuple from the consumer, a list or one record from FastStream's test broker
    return (raw,) if isinstance(raw, aiokafka.ConsumerRecord) else raw
