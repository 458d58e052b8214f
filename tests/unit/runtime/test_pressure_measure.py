"""Lag is measured with one question to each group's coordinator, and what a missing answer means."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.structs import OffsetAndMetadata

from schemas.errors import InfrastructureError
from services.runtime import position_codec
from services.runtime.connection import Connection
from services.runtime.delivery import Position, UnreadablePositionError
from services.runtime.offsets import Offsets
from services.runtime.pressure import Marks, Pressure
from services.runtime.record import TopicPartition

GROUPS = {"turns": "agent", "tool-calls": "tool", "trajectories": "verifier", "scored": "verifier"}
PARTITIONS = {"turns": 12, "tool-calls": 3, "trajectories": 3, "scored": 2}
END, START = 100, 40


class Coordinator:
    """Stands for the admin client: `committed` as given, partitions in `loading` left out, else nothing committed."""

    def __init__(self, committed=None, loading=(), meeting=None):
        self.calls = []
        self._committed, self._loading, self._meeting = committed or {}, loading, meeting

    async def list_consumer_group_offsets(self, group, partitions):
        self.calls.append((group, sorted(partitions)))
        if self._meeting is not None:
            await self._meeting.wait()
        never = OffsetAndMetadata(-1, "")
        return {p: self._committed.get(p, never) for p in partitions if p not in self._loading}

    async def close(self):
        pass


class Ends:
    """Stands for the consumer that knows where partitions begin and end."""

    async def end_offsets(self, partitions):
        return dict.fromkeys(partitions, END)

    async def beginning_offsets(self, partitions):
        return dict.fromkeys(partitions, START)


def offsets_of(group, coordinator, *, strict=False):
    offsets = Offsets(Connection("nowhere:9092"), group, strict=strict)
    offsets._admin = coordinator
    return offsets


def pressure_with(coordinator, optional=frozenset()):
    pressure = Pressure(Connection("nowhere:9092"), GROUPS, PARTITIONS, Marks(10, 5), optional)
    pressure._offsets = {g: offsets_of(g, coordinator) for g in pressure._offsets}
    return pressure


def inputs(*topics):
    return sorted(TopicPartition(t, p) for t in topics for p in range(PARTITIONS[t]))


async def test_each_group_is_asked_once_for_all_its_partitions():
    coordinator = Coordinator()
    await pressure_with(coordinator)._measure(Ends())
    asked = {"agent": inputs("turns"), "tool": inputs("tool-calls"), "verifier": inputs("trajectories", "scored")}
    assert len(coordinator.calls) == 3
    assert dict(coordinator.calls) == asked


async def test_the_groups_are_asked_side_by_side():
    coordinator = Coordinator(meeting=asyncio.Barrier(3))  # none is answered before all have been asked
    async with asyncio.timeout(5.0):
        await pressure_with(coordinator)._measure(Ends())


async def test_what_is_open_counts_from_the_position_or_the_start_and_not_where_a_group_may_be_missing():
    half = OffsetAndMetadata(90, position_codec.encode(Position(90, 0b110)))  # 91 and 92 are finished
    committed = dict.fromkeys(inputs("turns"), half)
    pressure = pressure_with(Coordinator(committed), optional=frozenset({"scored"}))
    assert await pressure._measure(Ends()) == 12 * (END - 90 - 2) + 6 * (END - START)


async def test_a_coordinator_that_is_loading_gives_no_measurement():
    loading = TopicPartition("tool-calls", 1)
    with pytest.raises(InfrastructureError, match="group tool does not answer"):
        await pressure_with(Coordinator(loading=[loading]))._measure(Ends())


async def test_positions_of_many_are_those_of_each():
    p, q = TopicPartition("turns", 0), TopicPartition("turns", 1)
    coordinator = Coordinator({p: OffsetAndMetadata(7, "")})
    offsets = offsets_of("agent", coordinator)
    assert await offsets.committed_many([p, q]) == {p: Position(7), q: Position()}
    assert [await offsets.committed(x) for x in (p, q)] == [Position(7), Position()]
    assert len(coordinator.calls) == 3
    assert await offsets.committed_many([]) == {}
    assert len(coordinator.calls) == 3


async def test_one_unreadable_position_stops_a_strict_reader_of_many():
    p, q = TopicPartition("turns", 0), TopicPartition("turns", 1)
    coordinator = Coordinator({p: OffsetAndMetadata(7, ""), q: OffsetAndMetadata(9, "somebody else's")})
    with pytest.raises(UnreadablePositionError, match="group agent, turns/1"):
        await offsets_of("agent", coordinator, strict=True).committed_many([p, q])
    assert await offsets_of("agent", coordinator).committed_many([p, q]) == {p: Position(7), q: Position(9)}
