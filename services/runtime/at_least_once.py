"""At-least-once delivery: an idempotent producer, then a plain offset commit.

For brokers without transactions, and for speed. Invariant: the position is committed only after every replica has
acknowledged the outputs. A worker killed between the two does that work again, so consumers downstream drop what they
have seen by identity (the sink does).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from services.runtime import position_codec
from services.runtime.batches import Batches
from services.runtime.delivery import Position
from services.runtime.exactly_once import COMMIT_TIMEOUT_S
from services.runtime.offsets import Offsets
from services.runtime.record import Outgoing, TopicPartition

Commit = Callable[[TopicPartition, int, str], Awaitable[None]]
"""Commits an offset with metadata through the group's consumer, which refuses when the partition is no longer its own."""


class AtLeastOnce:
    """Delivery of one input partition; the stage's partitions share one producer."""

    def __init__(
        self, batches: Callable[[], Awaitable[Batches]], partition: TopicPartition, offsets: Offsets, commit: Commit
    ) -> None:
        self._batches = batches
        self._input = partition
        self._offsets = offsets
        self._commit = commit

    async def open(self) -> Position:
        async with asyncio.timeout(COMMIT_TIMEOUT_S):
            return await self._offsets.committed(self._input)

    async def commit(self, outputs: Sequence[Outgoing], position: Position) -> None:
        if position.offset is None:
            raise RuntimeError("commit before open")
        async with asyncio.timeout(COMMIT_TIMEOUT_S):
            batches = await self._batches()
            await batches.acknowledged(await batches.send(outputs))
            await self._commit(self._input, position.offset, position_codec.encode(position))

    async def close(self) -> None:
        """Nothing of its own to close."""
