"""What comes into a step and what goes out of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import aiokafka
from aiokafka import TopicPartition

from schemas.quick import quick

__all__ = ["HELD", "Answer", "ConsumerRecord", "Held", "Keeper", "Outgoing", "Outputs", "Step", "Together", "TopicPartition"]

ConsumerRecord = aiokafka.ConsumerRecord[bytes, bytes]


@quick
@dataclass(frozen=True, slots=True)
class Outgoing:
    """One record to hand on. `topic` is a full topic name (for the sink: the kind of line)."""

    topic: str
    key: bytes | None
    value: bytes
    headers: Sequence[tuple[str, bytes]] = ()


Outputs = Sequence[Outgoing]


class Held:
    """The class of `HELD`."""


HELD: Final = Held()
"""A step's answer for a record that it keeps back: its offset stays open until it is among the records of a `Together`."""


@dataclass(frozen=True, slots=True, eq=False)
class Together:
    """Records of one partition that are finished as one: all their outputs are in one commit.

    `offsets` are those that were held, and that of the record in hand when a step answers with this. `work` gives the outputs
    of each offset (those it leaves out have none). `records` holds what can be told of should the work fail; an offset that
    is not among them is then finished without a word.
    """

    offsets: Sequence[int]
    work: Callable[[], Awaitable[Mapping[int, Outputs]]]
    records: Mapping[int, ConsumerRecord]


Answer = Outputs | Awaitable[Outputs] | Held | Together


class Step(Protocol):
    """The work of a stage on one record: a function from a record to the records that it leads to.

    It may answer at once, be awaited, or hold the record back (`HELD`) to finish it later with others (`Together`). It must
    not raise for a bad record: a failure is an output too. Whatever it does besides (a model call, a tool) may happen more
    than once when a worker is killed; its outputs count once.
    """

    def __call__(self, record: ConsumerRecord) -> Answer: ...


class Keeper(Protocol):
    """A step that holds records back, as its stage asks it for what need not wait any longer.

    `forget` comes when a partition opens and when it has gone elsewhere: the records held of it are no longer held (they are
    read again), what a `Together` has taken over goes on. None of these may raise, but `due` a `StopWorkerError`.
    """

    @property
    def full(self) -> bool:
        """Whether nothing further should be read until something held is finished; `due` then finds something."""
        ...

    def forget(self, partition: int) -> None: ...

    def remember(self, record: ConsumerRecord) -> None:
        """A record of the partition that was read again and needs no work."""
        ...

    def due(self, partition: int, *, caught_up: bool, stuck: bool) -> Together | None:
        """Held records to finish now, or None.

        `caught_up`: everything that the partition's log holds has been handed over. `stuck`: nothing more is read before
        something held is finished.
        """
        ...
