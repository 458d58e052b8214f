"""The seven topics: names, partitions, retention, record size. Declared here and nowhere else.

Invariant: every name a worker uses comes from a `Topics` value, so one prefix moves a whole pipeline.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_MIB = 1 << 20

INLINE_LIMIT = 900_000
"""Bytes of payload above which a part of an event travels by reference (claim check). Below the broker's usual
1 MiB `message.max.bytes` with room for keys, headers and the event's other fields."""

MAX_PROMPT_BYTES = 16 * _MIB
"""Largest row. A larger one is a mistake in nearly every dataset, and each copy costs a worker that much memory."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """One topic as it is to be created; `partitions` is scaled by `Topics.declare`."""

    name: str
    retention_ms: int
    max_message_bytes: int = 8 * _MIB
    compacted: bool = False
    single_partition: bool = False


PROMPTS = TopicSpec("prompts", 7 * _DAY_MS, max_message_bytes=2 * MAX_PROMPT_BYTES)
TURNS = TopicSpec("turns", 2 * _DAY_MS)
TOOL_CALLS = TopicSpec("tool-calls", 2 * _DAY_MS)
TRAJECTORIES = TopicSpec("trajectories", 30 * _DAY_MS)  # kept long: re-verification replays it
SCORED = TopicSpec("scored-rollouts", 30 * _DAY_MS, max_message_bytes=32 * _MIB)
FAILURES = TopicSpec("failures", 30 * _DAY_MS, max_message_bytes=2 * MAX_PROMPT_BYTES)
CONTROL = TopicSpec("control", 30 * _DAY_MS, compacted=True, single_partition=True)

ALL = (PROMPTS, TURNS, TOOL_CALLS, TRAJECTORIES, SCORED, FAILURES, CONTROL)


@dataclass(frozen=True, slots=True)
class Topics:
    """The names of one pipeline's topics, and how many partitions each has when we create it."""

    prefix: str = "rollstream"
    partitions: int = 12

    def name(self, spec: TopicSpec) -> str:
        """Full name of a topic, such as `rollstream.prompts`."""
        return f"{self.prefix}.{spec.name}" if self.prefix else spec.name

    def group(self, stage: str, scope: str = "") -> str:
        """Consumer group of a stage; `scope` sets a run's own workers apart from the shared ones."""
        return ".".join(part for part in (self.prefix, stage, scope) if part)

    def declare(self) -> Iterator[tuple[str, int, dict[str, str]]]:
        """Every topic as (name, partitions, configuration)."""
        for spec in ALL:
            yield self.name(spec), 1 if spec.single_partition else self.partitions, topic_config(spec)


def topic_config(spec: TopicSpec) -> dict[str, str]:
    """Broker-side configuration of a topic, in Kafka's own keys."""
    policy = {"cleanup.policy": "compact"} if spec.compacted else {"retention.ms": str(spec.retention_ms)}
    return {"max.message.bytes": str(spec.max_message_bytes), **policy}


def partition_of(key: bytes, partitions: int) -> int:
    """Partition of a key: CRC-32 modulo the count, which is what librdkafka's (and kcat's) default partitioner does.

    CPython's zlib does it in 0.2 µs where Kafka's murmur2 in Python takes 6.
    """
    return zlib.crc32(key) % partitions
