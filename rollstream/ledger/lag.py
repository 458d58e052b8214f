"""Lag of every stage: how many records wait for its consumer group.

A group commits the offset below which all is finished; what it has finished beyond is in the commit's metadata and is not
waiting. Invariant: a stage that has finished all there is has lag 0. The end of a topic written by transactions is a
control record, which no group ever passes, so short lags are counted over records and not over offsets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiokafka import TopicPartition

from rollstream.ledger.reader import LogReader
from schemas.topics import FAILURES, PROMPTS, SCORED, TOOL_CALLS, TRAJECTORIES, TURNS, Topics, TopicSpec
from services.runtime import admin, position_codec
from services.runtime.connection import Connection
from services.runtime.delivery import Position, UnreadablePositionError
from services.runtime.record import ConsumerRecord

SHORT = 100
"""Offsets of a partition up to which the records themselves are counted; in a longer lag the control records are noise."""


@dataclass(frozen=True, slots=True)
class StageInput:
    """A stage, which is also its group's name after the prefix, and a topic it reads."""

    stage: str
    topic: TopicSpec


INPUTS = (
    StageInput("admission", PROMPTS),
    StageInput("agent", TURNS),
    StageInput("tool", TOOL_CALLS),
    StageInput("verifier", TRAJECTORIES),
    StageInput("sink", SCORED),
    StageInput("sink", FAILURES),
)


@dataclass(frozen=True, slots=True)
class StageLag:
    """Records of `topic` that `group` has not finished. `started` is False for a group that never committed there."""

    stage: str
    topic: str
    group: str
    lag: int
    started: bool


async def stage_lag(
    connection: Connection, topics: Topics, *, scope: str = "", inputs: Sequence[StageInput] = INPUTS
) -> list[StageLag]:
    """The lag of each input whose topic exists.

    `scope` is a run with workers of its own (`rollstream run`): its groups are looked at where they exist, the shared ones
    elsewhere. Records of other runs count until a run's own group has passed them. Raises `AdminError` when the broker
    does not answer.
    """
    names = sorted({topics.name(i.topic) for i in inputs})
    ends = await admin.end_offsets(connection, names)
    first = await admin.beginning_offsets(connection, names)
    found = []
    for i in inputs:
        here = {tp: end for tp, end in ends.items() if tp.topic == topics.name(i.topic)}
        if here:
            group, committed = await _committed(connection, topics, i.stage, scope, list(here))
            lag = await _lag(connection, here, {tp: _position(committed.get(tp), first[tp]) for tp in here})
            found.append(StageLag(i.stage, topics.name(i.topic), group, lag, bool(committed)))
    return found


async def _committed(
    connection: Connection, topics: Topics, stage: str, scope: str, partitions: Sequence[TopicPartition]
) -> tuple[str, dict[TopicPartition, admin.Committed]]:
    if scope:
        group = topics.group(stage, scope)
        found = await admin.committed(connection, group, partitions)
        if found:
            return group, found
    group = topics.group(stage)
    return group, await admin.committed(connection, group, partitions)


async def _lag(connection: Connection, ends: Mapping[TopicPartition, int], positions: Mapping[TopicPartition, Position]) -> int:
    spans = {tp: end - (positions[tp].offset or 0) for tp, end in ends.items()}
    lag = sum(span - len(positions[tp].beyond) for tp, span in spans.items() if span > SHORT)
    short = {tp: ends[tp] for tp, span in spans.items() if 0 < span <= SHORT}
    return lag + (await _count(connection, short, positions) if short else 0)


async def _count(
    connection: Connection, ends: Mapping[TopicPartition, int], positions: Mapping[TopicPartition, Position]
) -> int:
    """Unfinished records below `ends`, by reading them."""
    finished = {tp: set(positions[tp].beyond) for tp in ends}
    counted: Counter[TopicPartition] = Counter()

    def count(record: ConsumerRecord) -> None:
        partition = TopicPartition(record.topic, record.partition)
        counted[partition] += record.offset not in finished[partition]

    async with LogReader(connection, sorted({tp.topic for tp in ends})) as reader:
        await reader.read(ends, {tp: positions[tp].offset or 0 for tp in ends}, count)
    return counted.total()


def _position(committed: admin.Committed | None, first: int) -> Position:
    """Where a group stands; at the first record when it never committed or what it committed is no longer kept."""
    if committed is None or committed.offset < first:
        return Position(first)
    try:
        return position_codec.decode(committed.offset, committed.metadata)
    except UnreadablePositionError:
        return Position(committed.offset)
