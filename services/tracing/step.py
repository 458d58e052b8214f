"""A stage's step with a span for each record of a traced rollout, and one for the whole rollout where it ends.

Invariant: what the step answers goes on unchanged; a record of a rollout that is not traced costs a look at its headers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from schemas import codec, headers
from schemas.errors import Outcome, RolloutError
from schemas.events import Failure, Trajectory
from services.runtime.record import Answer, ConsumerRecord, Keeper, Outgoing, Outputs, Step, Together
from services.tracing.span import Value
from services.tracing.tracer import CURRENT, Tracer, Trail

_ENDS = frozenset({Outcome.FAILED, Outcome.CANCELLED, Outcome.EXPIRED})
_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class TracedStep:
    """`step` of the stage `name`; `scored_topic` and `failures_topic` are where rollouts end."""

    step: Step
    name: str
    tracer: Tracer
    scored_topic: str
    failures_topic: str

    def __call__(self, record: ConsumerRecord) -> Answer:
        trail = self.tracer.trail(record.headers)
        if trail is None and headers.value(record.headers, headers.ROLLOUT) is not None:
            return self.step(record)
        started = self.tracer.now_ns()
        below = trail.below() if trail is not None else None
        token = CURRENT.set(below)
        try:
            answer = self.step(record)
        finally:
            CURRENT.reset(token)
        if isinstance(answer, Together):
            return self.together(answer)
        if isinstance(answer, Awaitable):
            return self._later(answer, record, started, below)
        if isinstance(answer, Sequence):
            self._tell(record, answer, started, below)
        return answer

    def together(self, found: Together) -> Together:
        """The same work, with a span for each of its records that is traced."""

        async def work() -> Mapping[int, Outputs]:
            started = self.tracer.now_ns()
            trails = {offset: self.tracer.trail(record.headers) for offset, record in found.records.items()}
            below = {offset: trail.below() for offset, trail in trails.items() if trail is not None}
            CURRENT.set(next(iter(below.values()), None))  # the group's model calls are told of in one of its traces
            outputs = await found.work()
            for offset, trail in below.items():
                self._tell(found.records[offset], outputs.get(offset, ()), started, trail)
            return outputs

        return dataclasses.replace(found, work=work)

    async def _later(self, answer: Awaitable[Outputs], record: ConsumerRecord, started: int, below: Trail | None) -> Outputs:
        token = CURRENT.set(below)
        try:
            outputs = await answer
        except BaseException as e:
            trail = self.tracer.trail(record.headers)
            if trail is not None and below is not None:
                trail.add(self.name, started, self._about(record, started), type(e).__name__, below.span_id)
            raise
        finally:
            CURRENT.reset(token)
        self._tell(record, outputs, started, below)
        return outputs

    def _tell(self, record: ConsumerRecord, outputs: Outputs, started: int, below: Trail | None) -> None:
        """The record's span; for a prompt, which is of no rollout yet, one for each rollout that it became."""
        about = self._about(record, started)
        trail = self.tracer.trail(record.headers)
        if trail is not None and below is not None:
            failed = next((o for o in outputs if o.topic == self.failures_topic), None)
            trail.add(self.name, started, about, self._why(failed), below.span_id)
        for out in outputs:
            own = trail or self.tracer.trail(out.headers)
            if own is None:
                continue
            if trail is None:
                own.add(self.name, started, about, self._why(out if out.topic == self.failures_topic else None))
            self._end(own, record, out)

    def _end(self, trail: Trail, record: ConsumerRecord, out: Outgoing) -> None:
        about: dict[str, Value] = {"rollstream.run": trail.run.decode(), "rollstream.rollout": trail.rollout.decode()}
        with suppress(RolloutError):
            if out.topic == self.scored_topic:
                event = codec.decode(record.value or b"", Trajectory)
                about |= {"rollstream.environment": event.environment, "rollstream.agent": event.agent}
                about["rollstream.turns"] = event.turns
                score = headers.read_score(out.headers)
                trail.add_whole(
                    event.admitted_ms * _NS_PER_MS, about | ({"rollstream.reward": float(score.reward)} if score else {})
                )
            elif out.topic == self.failures_topic:
                failure = codec.decode(out.value, Failure)
                if failure.outcome in _ENDS:
                    about |= {"rollstream.environment": failure.environment, "rollstream.failure": failure.failure_class}
                    began = (failure.failed_ms - failure.elapsed_ms) * _NS_PER_MS
                    trail.add_whole(began, about, f"{failure.outcome}: {failure.failure_class}")

    def _why(self, failed: Outgoing | None) -> str | None:
        if failed is None:
            return None
        with suppress(RolloutError):
            return codec.decode(failed.value, Failure).failure_class
        return "failure"

    def _about(self, record: ConsumerRecord, started: int) -> dict[str, Value]:
        """Where the record lies, and how long it has waited there."""
        waited = max(0.0, started / _NS_PER_MS - record.timestamp)
        return {
            "messaging.system": "kafka",
            "messaging.destination.name": record.topic,
            "messaging.destination.partition.id": str(record.partition),
            "messaging.kafka.offset": record.offset,
            "rollstream.waited_ms": waited,
        }


@dataclass(frozen=True, slots=True)
class TracedKeeper:
    """A step that holds records back, with spans for those it takes up by itself."""

    keeper: Keeper
    traced: Callable[[Together], Together]

    @property
    def full(self) -> bool:
        return self.keeper.full

    def forget(self, partition: int) -> None:
        self.keeper.forget(partition)

    def remember(self, record: ConsumerRecord) -> None:
        self.keeper.remember(record)

    def due(self, partition: int, *, caught_up: bool, stuck: bool) -> Together | None:
        found = self.keeper.due(partition, caught_up=caught_up, stuck=stuck)
        return None if found is None else self.traced(found)
