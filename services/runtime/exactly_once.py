"""Exactly-once delivery: one transactional producer for each assigned input partition (design §2).

Owns the transaction. Invariants:

- `transactional.id` names the input partition, so starting the producer fences whoever had the partition before: a
  worker that was stopped and comes back cannot commit.
- The producer starts before the position is read. Whatever the previous owner had in flight is then either committed
  and visible, or aborted for good.
- A transaction is committed only when every one of its records is acknowledged; one that is given up is aborted by the
  next opening.
- A transaction is open only while it is written, so readers of the outputs are never held up by work in progress.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from aiokafka import AIOKafkaProducer
from aiokafka.errors import InvalidProducerEpoch, KafkaError, ProducerFenced
from aiokafka.structs import OffsetAndMetadata

from services.runtime import position_codec
from services.runtime.batches import MAX_BATCH_BYTES, Batches
from services.runtime.connection import Connection
from services.runtime.delivery import FencedError, Position
from services.runtime.offsets import Offsets
from services.runtime.record import Outgoing, TopicPartition

TRANSACTION_TIMEOUT_S = 30.0
"""The broker aborts a transaction that its worker left open for this long. Ours last milliseconds; the bound matters when
a worker dies inside one, because readers wait for the abort unless a new owner fences it first."""

COMMIT_TIMEOUT_S = 25.0
"""Shorter than the broker's bound, so the worker gives up before the broker aborts under it."""

RETRY_BACKOFF_MS = 5
"""Brokers refuse the first records of a transaction for a moment (`NotEnoughReplicas`) while they verify that it is open.
With aiokafka's default of 100 ms a commit took 27 ms, with this 3.4."""


class ExactlyOnce:
    """Delivery of one input partition in transactions."""

    def __init__(
        self,
        connection: Connection,
        group: str,
        partition: TopicPartition,
        partitions: Mapping[str, int],
        offsets: Offsets,
    ) -> None:
        self._connection = connection
        self._group = group
        self._input = partition
        self._partitions = partitions
        self._offsets = offsets
        self._producer: AIOKafkaProducer | None = None
        self._batches: Batches | None = None

    async def open(self) -> Position:
        await self.close()
        self._producer = AIOKafkaProducer(
            **self._connection.kwargs(),
            transactional_id=f"{self._group}.{self._input.topic}.{self._input.partition}",
            transaction_timeout_ms=int(TRANSACTION_TIMEOUT_S * 1000),
            max_batch_size=MAX_BATCH_BYTES,
            max_request_size=MAX_REQUEST_BYTES,
            retry_backoff_ms=RETRY_BACKOFF_MS,
        )
        async with asyncio.timeout(COMMIT_TIMEOUT_S):
            await self._producer.start()
            self._batches = Batches(self._producer, self._partitions)
            return await self._offsets.committed(self._input)

    async def commit(self, outputs: Sequence[Outgoing], position: Position) -> None:
        try:
            async with asyncio.timeout(COMMIT_TIMEOUT_S):
                await self._transact(outputs, position)
        except (ProducerFenced, InvalidProducerEpoch) as e:
            raise FencedError(str(e)) from e

    async def _transact(self, outputs: Sequence[Outgoing], position: Position) -> None:
        producer, batches = self._producer, self._batches
        if producer is None or batches is None or position.offset is None:
            raise RuntimeError("commit before open")
        await producer.begin_transaction()
        sent = await batches.send(outputs)
        metadata = position_codec.encode(position)
        await producer.send_offsets_to_transaction({self._input: OffsetAndMetadata(position.offset, metadata)}, self._group)
        # aiokafka commits whatever became of the batches: a refused record would be finished and nowhere.
        await batches.acknowledged(sent)
        await producer.commit_transaction()

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await asyncio.shield(stop_quietly(producer))  # its connections are closed even when an opening is given up


MAX_REQUEST_BYTES = 40 << 20
"""Above the largest `max.message.bytes` of our topics, so that the broker's limit is the one that speaks."""

_STOP_TIMEOUT_S = 2.0
"""A producer stops in milliseconds, unless its broker is away; a worker that ends has no time for that."""


async def stop_quietly(producer: AIOKafkaProducer) -> None:
    """Stop a producer that may be broken: a fenced one raises, one without a broker waits; neither matters any more."""
    try:
        async with asyncio.timeout(_STOP_TIMEOUT_S):
            await producer.stop()
    except (KafkaError, TimeoutError, OSError, asyncio.InvalidStateError):
        pass
