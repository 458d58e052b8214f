"""How finished work is made durable: the small interface behind which exactly-once, at-least-once and files stand.

Invariant, for every delivery: when `commit` returns, the outputs and the fact that their inputs are finished are durable
together; when it raises, the lane must `open` again before it goes on, and `open` says what is true now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from schemas.quick import quick
from services.runtime.record import Outgoing, TopicPartition


@quick
@dataclass(frozen=True, slots=True)
class Position:
    """How far a partition is: everything below `offset` is finished, and so is `offset + i` for each bit i of `finished`.

    `offset` None means that nothing was ever committed: begin with the first record there is.
    """

    offset: int | None = None
    finished: int = 0

    @property
    def beyond(self) -> list[int]:
        """The finished offsets beyond `offset`, in order."""
        base, digits = self.offset or 0, f"{self.finished:b}"[::-1]  # digits: shifting bit by bit would be quadratic
        return [base + i for i, digit in enumerate(digits) if digit == "1"]


class FencedError(Exception):
    """Another worker owns the partition now. The lane drops what it holds, quietly."""


class StopWorkerError(Exception):
    """Going on would lose or double something: the worker stops with this message, and nothing is lost."""


class UnreadablePositionError(StopWorkerError):
    """The committed metadata cannot be decoded: exactly-once stops rather than risk doing work twice."""


class Delivery(Protocol):
    """Makes the work of one partition durable.

    One instance for as long as a worker keeps the partition; it is opened again after each rebalance and failed commit.
    """

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
