"""How much is open downstream of admission, measured as consumer lag (design §3).

Owns the number and the two marks. Invariant: admission stops while more than `high_water` rollouts are open and starts
again below `low_water`; between two measurements it may admit no more than the room that the last one left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import structlog
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError

from schemas.errors import InfrastructureError
from services.runtime.connection import Connection
from services.runtime.delivery import Position
from services.runtime.offsets import Offsets
from services.runtime.record import TopicPartition

log = structlog.get_logger()

_MEASURE_S = 1.0
_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Marks:
    """Open rollouts above which admission stops, and below which it goes on."""

    high_water: int
    low_water: int


class Pressure:
    """Open records in the inner topics, by asking the broker once a second.

    `groups` maps each topic to the group that reads it; the group of an `optional` topic may not exist. Records that a
    group has finished out of order are not open: the committed metadata tells. `open` is what the last measurement
    found, by topic.
    """

    def __init__(
        self,
        connection: Connection,
        groups: Mapping[str, str],
        partitions: Mapping[str, int],
        marks: Marks,
        optional: frozenset[str] = frozenset(),
    ) -> None:
        self._connection = connection
        self._groups = groups
        self._inputs = [TopicPartition(t, p) for t in groups for p in range(partitions[t])]
        self._offsets = {g: Offsets(connection, g, strict=False) for g in set(groups.values())}
        self._marks = marks
        self._room = marks.high_water
        self.open: dict[str, int] = {}
        self._closed = False
        self._optional = optional
        self._task: asyncio.Task[None] | None = None

    def may_admit(self) -> bool:
        """Whether new prompts may start."""
        return not self._closed and self._room > 0

    def admitted(self, rollouts: int) -> None:
        """Note rollouts admitted since the last measurement."""
        self._room -= rollouts

    async def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.gather(*(o.close() for o in self._offsets.values()))

    async def _watch(self) -> None:
        while True:
            consumer = AIOKafkaConsumer(**self._connection.kwargs())
            try:
                await consumer.start()
                await self._measure_on(consumer)
            except (KafkaError, InfrastructureError, TimeoutError, OSError) as e:
                log.warning("lag not measured", error=repr(e))
                await asyncio.sleep(_MEASURE_S)
            finally:
                await consumer.stop()

    async def _measure_on(self, consumer: AIOKafkaConsumer) -> None:
        while True:
            await asyncio.sleep(_MEASURE_S)
            async with asyncio.timeout(_TIMEOUT_S):
                self._judge(await self._measure(consumer))

    async def _measure(self, consumer: AIOKafkaConsumer) -> int:
        ends = await consumer.end_offsets(self._inputs)
        starts = await consumer.beginning_offsets(self._inputs)
        positions = await self._positions()
        found = dict.fromkeys(self._groups, 0)
        for p in self._inputs:
            found[p.topic] += open_records(self._where(p, positions[p], starts[p]), ends[p])
        self.open = found
        return sum(found.values())

    async def _positions(self) -> dict[TopicPartition, Position]:
        """Where each group is: one request for each, all at once."""
        asked = (
            offsets.committed_many([p for p in self._inputs if self._groups[p.topic] == group])
            for group, offsets in self._offsets.items()
        )
        found: dict[TopicPartition, Position] = {}
        for answer in await asyncio.gather(*asked, return_exceptions=True):  # none goes on unattended when another fails
            if isinstance(answer, BaseException):
                raise answer
            found |= answer
        return found

    def _where(self, partition: TopicPartition, committed: Position, start: int) -> Position:
        if committed.offset is None and partition.topic not in self._optional:
            return Position(start)  # its stage was never up: all of it waits
        return committed

    def _judge(self, found: int) -> None:
        self._room = self._marks.high_water - found
        self._closed = found > self._marks.low_water if self._closed else found >= self._marks.high_water


def open_records(position: Position, end: int) -> int:
    """Offsets below `end` that a group has not finished.

    A partition without a position has none: nobody has ever read it, and perhaps nobody is meant to.
    """
    if position.offset is None:
        return 0
    return max(0, end - position.offset - position.finished.bit_count())
