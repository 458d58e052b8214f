"""Parts of the log, from one offset to another.

Invariant: exactly the committed records of the range are handed out, however transactions and compaction have thinned it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from schemas.errors import InfrastructureError
from services.runtime.admin import partitions_of
from services.runtime.connection import Connection
from services.runtime.record import ConsumerRecord

Marks = Mapping[TopicPartition, int]
"""A moment in the log: an offset for each partition."""

_FETCH_BYTES = 8 << 20
"""Asked of each partition: whole batches of large scored lines in few requests."""

_STALL_S = 30.0
"""A broker that sends nothing for this long, while it says that there is more, has a fault."""

_START_TIMEOUT_S = 10.0
_EMPTY_POLL_MS = 200


class LogReader:
    """Reads partitions of topics from one offset to another, committed records only; belongs to no group."""

    def __init__(self, connection: Connection, names: Sequence[str]) -> None:
        self._connection = connection
        self._where = connection.bootstrap_servers
        self._consumer: AIOKafkaConsumer
        self._partitions: dict[str, list[TopicPartition]] = {n: [] for n in names}

    async def __aenter__(self) -> Self:
        for tp in await partitions_of(self._connection, self._partitions, timeout_s=_START_TIMEOUT_S):
            self._partitions[tp.topic].append(tp)
        missing = [name for name, found in self._partitions.items() if not found]
        if missing:
            what = f"topic {missing[0]}" if len(missing) == 1 else f"topic of {', '.join(missing)}"
            raise InfrastructureError(f"there is no {what} at {self._where}: has a worker or producer run with this prefix?")
        self._consumer = AIOKafkaConsumer(
            **self._connection.kwargs(),
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=_FETCH_BYTES,
        )
        try:
            await asyncio.wait_for(self._consumer.start(), _START_TIMEOUT_S)
        except (KafkaError, TimeoutError) as e:
            await self._consumer.stop()
            raise InfrastructureError(f"no Kafka broker answers at {self._where}: {e!r}") from e
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()

    async def ends(self, names: Sequence[str]) -> dict[TopicPartition, int]:
        """The last stable offset of every partition: where committed records end."""
        return dict(await self._consumer.end_offsets([tp for n in names for tp in self._partitions[n]]))

    async def starts(self, names: Sequence[str], since_ms: int | None = None) -> dict[TopicPartition, int]:
        """The first offset of every partition that is kept, or, with `since_ms`, the first written since then (or the end)."""
        partitions = [tp for n in names for tp in self._partitions[n]]
        if since_ms is None:
            return dict(await self._consumer.beginning_offsets(partitions))
        ends, found = await self.ends(names), await self._consumer.offsets_for_times(dict.fromkeys(partitions, since_ms))
        return {tp: ends[tp] if found.get(tp) is None else found[tp].offset for tp in partitions}

    async def read(self, upto: Marks, since: Marks, enter: Callable[[ConsumerRecord], None]) -> None:
        """Hand every committed record below `upto` and not below `since` to `enter`."""
        self._consumer.assign(list(upto))
        first = await self._consumer.beginning_offsets(list(upto))
        left = {}
        for partition, end in upto.items():
            start = max(since.get(partition, 0), first[partition])
            self._consumer.seek(partition, start)
            if start < end:
                left[partition] = end
            else:
                self._consumer.pause(partition)
        await self._drain(left, enter)

    async def _drain(self, left: dict[TopicPartition, int], enter: Callable[[ConsumerRecord], None]) -> None:
        heard = time.monotonic()
        while left:
            found = await self._consumer.getmany(*left, timeout_ms=_EMPTY_POLL_MS)
            for partition, records in found.items():
                end = left[partition]
                for record in records:
                    if record.offset < end:
                        enter(record)
            done = [p for p, end in left.items() if await self._consumer.position(p) >= end]
            for partition in done:
                del left[partition]
                self._consumer.pause(partition)
            if found or done:
                heard = time.monotonic()
            elif time.monotonic() - heard > _STALL_S:
                raise InfrastructureError(f"the broker at {self._where} sent nothing for {_STALL_S:g} s; left to read: {left}")
