"""What comes into a step and what goes out of it."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Protocol

import aiokafka
from aiokafka import TopicPartition

__all__ = ["ConsumerRecord", "Outgoing", "Outputs", "Step", "TopicPartition"]

ConsumerRecord = aiokafka.ConsumerRecord[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One record to hand on. `topic` is a full topic name (for the sink: the kind of line)."""

    topic: str
    key: bytes | None
    value: bytes
    headers: Sequence[tuple[str, bytes]] = ()


Outputs = Sequence[Outgoing]


class Step(Protocol):
    """The work of a stage on one record: a function from a record to the records that it leads to.

    It may answer at once or be awaited. It must not raise for a bad record: a failure is an output too. Whatever it
    does besides (a model call, a tool) may happen more than once when a worker is killed; its outputs count once.
    """

    def __call__(self, record: ConsumerRecord) -> Outputs | Awaitable[Outputs]: ...
