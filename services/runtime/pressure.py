"""How much is open downstream of admission, measured as consumer lag (design §3).

Owns the number and the two marks. Invariant: admission stops while more than `high_water` rollouts are open and starts
again below `low_water`; between two measurements it may admit no more than the room that the last one left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
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

    `groups` maps each topic to the group that reads it. Records that a group has finished out of order are not open:
    the committed metadata tells.
    """

    def __init__(self, connection: Connection, groups: Mapping[str, str], partitions: Mapping[str, int], marks: Marks) -> None:
        self._connection = connection
        self._groups = groups
        self._inputs = [TopicPartition(t, p) for t in groups for p in range(partitions[t])]
        self._offsets = {g: Offsets(connection, g, strict=False) for g in set(groups.values())}
        self._marks = marks
        self._room = marks.high_water
        self._closed = False
        self._task: asyncio.Task[None] | None = None
        self._on_change: Callable[[], None] = lambda: None

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
        consumer = AIOKafkaConsumer(**self._connection.kwargs())
        await consumer.start()
        try:
            while True:
                await asyncio.sleep(_MEASURE_S)
                try:
                    async with asyncio.timeout(_TIMEOUT_S):
                        self._judge(await self._measure(consumer))
                except (KafkaError, InfrastructureError, TimeoutError, OSError) as e:
                    log.warning("lag not measured", error=repr(e))
        finally:
            await consumer.stop()

    async def _measure(self, consumer: AIOKafkaConsumer) -> int:
        ends = await consumer.end_offsets(self._inputs)
        positions = [await self._offsets[self._groups[p.topic]].committed(p) for p in self._inputs]
        return sum(open_records(position, ends[p]) for p, position in zip(self._inputs, positions, strict=True))

    def _judge(self, found: int) -> None:
        self._room = self._marks.high_water - found
        self._closed = found > self._marks.low_water if self._closed else found >= self._marks.high_water


def open_records(position: Position, end: int) -> int:
    """Offsets below `end` that a group has not finished.

    A partition that was never committed counts as done: it is a run's past or a topic that has just been made, and the
    first commit follows within milliseconds.
    """
    if position.offset is None:
        return 0
    return max(0, end - position.offset - position.finished.bit_count())
