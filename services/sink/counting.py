"""How many lines went to the output.

Invariant: a line counts when the output has taken it; one that comes again after a crash counts again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from services.runtime.delivery import Delivery, DeliveryFactory, Position
from services.runtime.record import Outgoing, TopicPartition


@dataclass(slots=True)
class Lines:
    """Lines by kind (`results`, `failures`), since the sink began."""

    counts: Counter[str] = field(default_factory=Counter)

    def counted(self, deliveries: DeliveryFactory) -> DeliveryFactory:
        """The same deliveries, counting."""
        return lambda partition: self._counting(deliveries, partition)

    def _counting(self, deliveries: DeliveryFactory, partition: TopicPartition) -> Delivery:
        return _Counting(deliveries(partition), self.counts)


@dataclass(slots=True)
class _Counting:
    """A delivery whose lines are counted."""

    delivery: Delivery
    counts: Counter[str]

    async def open(self) -> Position:
        return await self.delivery.open()

    async def commit(self, outputs: Sequence[Outgoing], position: Position) -> None:
        await self.delivery.commit(outputs, position)
        for out in outputs:
            self.counts[out.topic] += 1

    async def close(self) -> None:
        await self.delivery.close()
