"""Telling a group that one of its rollouts will never come.

A rollout that fails before it is verified leaves its siblings waiting. So with the failure of a rollout whose environment
scores groups goes a record on `trajectories` that says so. Invariant: both are in one commit. The record has the task's key
like the siblings' trajectories, and the verifier holds it as it holds a member; nobody has to read a second topic or to
remember anything, and what is read again after a kill says the same as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from environments.registry import Registry
from schemas import codec, headers
from schemas.errors import Outcome, RolloutError
from schemas.events import Failure, Payload, Trajectory
from schemas.identity import Place
from services.runtime.delivery import Delivery, DeliveryFactory, Position
from services.runtime.record import Outgoing, TopicPartition

_ENDS = frozenset({Outcome.FAILED, Outcome.CANCELLED, Outcome.EXPIRED})
"""Outcomes after which the rollout does not come; the others end a message."""

_NOWHERE = Place("", 0, 0)


@dataclass(frozen=True, slots=True)
class Absences:
    """Adds the records to what a stage commits: `Stage(…, absences.announced(deliveries))`."""

    failures_topic: str
    trajectories_topic: str
    registry: Registry

    def announced(self, deliveries: DeliveryFactory) -> DeliveryFactory:
        """The same deliveries; with each failure that a group waits for goes its announcement."""
        return lambda partition: self._announcing(deliveries, partition)

    def of(self, outputs: Sequence[Outgoing]) -> list[Outgoing]:
        """The announcements that `outputs` call for."""
        failures = [(codec.decode(o.value, Failure), o.headers) for o in outputs if o.topic == self.failures_topic]
        return [self._record(f, found) for f, found in failures if self._is_awaited(f)]

    def _announcing(self, deliveries: DeliveryFactory, partition: TopicPartition) -> Delivery:
        return _Announcing(deliveries(partition), self)

    def _is_awaited(self, failure: Failure) -> bool:
        if failure.ref is None or failure.ref.group_size <= 1 or failure.outcome not in _ENDS or not failure.environment:
            return False
        try:
            return self.registry.binding(failure.environment, None).environment.scoring == "group"
        except RolloutError:
            return False  # an environment that cannot be used has no group that waits

    def _record(self, failure: Failure, found: headers.Headers) -> Outgoing:
        assert failure.ref is not None
        passed = [h for h in found if h[0] == headers.TRACE]
        event = Trajectory(
            failure.ref,
            failure.environment,
            failure.agent,
            failure.source or _NOWHERE,
            admitted_ms=failure.failed_ms - failure.elapsed_ms,
            finished_ms=failure.failed_ms,
            row=Payload(),
            response=Payload(),
            absent=f"{failure.outcome} in the {failure.stage} stage ({failure.failure_class})",
        )
        return Outgoing(self.trajectories_topic, failure.ref.task_key, codec.encode(event), headers.of(failure.ref, *passed))


@dataclass(slots=True)
class _Announcing:
    """A delivery with announcements."""

    delivery: Delivery
    absences: Absences

    async def open(self) -> Position:
        return await self.delivery.open()

    async def commit(self, outputs: Sequence[Outgoing], position: Position) -> None:
        await self.delivery.commit([*outputs, *self.absences.of(outputs)], position)

    async def close(self) -> None:
        await self.delivery.close()
