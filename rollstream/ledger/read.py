"""The ledger, computed from the topics.

Invariant: it is a function of committed records alone, so it holds for prompts that came by `kcat`, while workers run, and
after all of them are gone. The ends of `scored-rollouts` and `failures` are noted before that of `prompts`: what had ended
by the first moment had been dispatched by the second, whatever happens in between.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from rollstream.ledger.book import Book, Naming, Record
from rollstream.ledger.ledger import Ledger
from rollstream.ledger.naming import Names
from schemas.errors import InfrastructureError
from schemas.topics import FAILURES, PROMPTS, SCORED, Topics
from services.runtime.connection import Connection

Marks = Mapping[TopicPartition, int]
"""A moment in the log: an offset for each partition."""

_FETCH_BYTES = 8 << 20
"""Asked of each partition: whole batches of large scored lines in few requests."""

_STALL_S = 30.0
"""A broker that sends nothing for this long, while it says that there is more, has a fault."""

_EMPTY_POLL_MS = 200


async def read_ledger(
    connection: Connection,
    topics: Topics | None = None,
    *,
    run: str | None = None,
    since: Marks | None = None,
    at_least_once: bool = False,
    name: Naming | None = None,
    now: Callable[[], float] = time.time,
) -> Ledger:
    """The account of `run` (None: of all runs) from `since` (see `mark`; None: the oldest record) to this moment.

    `name` says what a rollout in flight is counted under; by default the installed environments do. Raises
    `InfrastructureError` when the broker does not answer or a topic does not exist.
    """
    topics = topics or Topics()
    book = Book(run, topics.name(PROMPTS), at_least_once=at_least_once)
    async with _Reader(connection) as reader:
        taken_ms = int(now() * 1000)
        ends = await reader.ends([topics.name(SCORED), topics.name(FAILURES)])
        prompts = await reader.ends([topics.name(PROMPTS)])
        enter = {topics.name(SCORED): book.scored, topics.name(FAILURES): book.failure, topics.name(PROMPTS): book.prompt}
        for upto in (prompts, ends):
            await reader.read(upto, since or {}, lambda r: enter[r.topic](r))
    return book.close(taken_ms, name or Names().name)


async def mark(connection: Connection, topics: Topics | None = None) -> dict[TopicPartition, int]:
    """This moment in the log, for a later `read_ledger(since=...)`. Prompts written after it are in that ledger."""
    topics = topics or Topics()
    async with _Reader(connection) as reader:
        prompts = await reader.ends([topics.name(PROMPTS)])
        return {**prompts, **await reader.ends([topics.name(SCORED), topics.name(FAILURES)])}


class _Reader:
    """Reads partitions from one offset to another, committed records only; belongs to no group."""

    def __init__(self, connection: Connection) -> None:
        self._where = connection.bootstrap_servers
        self._consumer = AIOKafkaConsumer(
            **connection.kwargs(),
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=_FETCH_BYTES,
        )

    async def __aenter__(self) -> Self:
        try:
            await asyncio.wait_for(self._consumer.start(), _STALL_S)
        except (KafkaError, TimeoutError) as e:
            await self._consumer.stop()
            raise InfrastructureError(f"no Kafka broker answers at {self._where}: {e!r}") from e
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()

    async def ends(self, names: Sequence[str]) -> dict[TopicPartition, int]:
        """The last stable offset of every partition: where committed records end."""
        partitions = [TopicPartition(n, p) for n in names for p in await self._partitions(n)]
        return dict(await self._consumer.end_offsets(partitions))

    async def read(self, upto: Marks, since: Marks, enter: Callable[[Record], None]) -> None:
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

    async def _drain(self, left: dict[TopicPartition, int], enter: Callable[[Record], None]) -> None:
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

    async def _partitions(self, name: str) -> set[int]:
        await self._consumer.topics()  # one request that fetches the metadata of all topics
        found = self._consumer.partitions_for_topic(name)
        if not found:
            raise InfrastructureError(
                f"there is no topic {name} at {self._where}: has a worker or a producer run with this prefix?"
            )
        return set(found)
