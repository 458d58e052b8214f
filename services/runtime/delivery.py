"""How finished work is made durable: the small interface behind which exactly-once, at-least-once and files stand.

Invariant, for every delivery: when `commit` returns, the outputs and the fact that their inputs are finished are durable
together; when it raises, the lane must `open` again before it goes on, and `open` says what is true now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from services.runtime.record import Outgoing, TopicPartition


@dataclass(frozen=True, slots=True)
class Position:
    """How far a partition is: every delivered record below `offset` is finished, and so are those in `beyond`.

    `offset` None means that nothing was ever committed: begin where the consumer's reset policy says.
    """

    offset: int | None = None
    beyond: frozenset[int] = field(default_factory=frozenset)


class FencedError(Exception):
    """Another worker owns the partition now. The lane drops what it holds, quietly."""


class UnreadablePositionError(Exception):
    """The committed metadata cannot be decoded: exactly-once stops rather than risk doing work twice."""


class Delivery(Protocol):
    """Makes the work of one partition durable. One instance per assignment of one partition."""

    async def open(self) -> Position:
        """Take the partition over, fencing whoever had it, and say how far it is."""
        ...

    async def commit(self, outputs: Sequence[Outgoing], position: Position) -> None:
        """Make `outputs` and `position` durable together. Raises `FencedError` when the partition is no longer ours."""
        ...

    async def close(self) -> None:
        """Let go of connections; never raises."""
        ...


class DeliveryFactory(Protocol):
    """Makes the delivery for a partition when it is assigned."""

    def __call__(self, partition: TopicPartition) -> Delivery: ...
