"""The sink as a FastStream app: scored rollouts and failures into JSONL files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from schemas import topics as names
from schemas.errors import InfrastructureError
from schemas.events import Payload
from schemas.identity import RolloutRef
from services.runtime.claims import ClaimStore, claim_in_name
from services.runtime.delivery import Delivery
from services.runtime.record import ConsumerRecord, Outputs, TopicPartition
from services.runtime.stage import Stage, StageSettings
from services.runtime.sweeper import ClaimSweeper
from services.runtime.worker import GroupDeliveries, Pipeline, Worker
from services.sink.counting import Lines
from services.sink.step import SinkStep

STAGE = "sink"

_IN_ORDER = 1
"""The sink's files follow the order of each partition: one record at a time. Its work is a look at a line."""

_TIMEOUT_S = 300.0


class Target(Protocol):
    """Where lines go: a pair of files, or a directory for many replicas."""

    def delivery(self, partition: TopicPartition) -> Delivery: ...
    async def open(self) -> None: ...
    async def close(self) -> None: ...


Observe = Callable[[Outputs], None]


MakeTarget = Callable[[GroupDeliveries, Callable[[Exception], None]], Target]
"""Makes the files, given the deliveries that commit to Kafka and whom to tell of an output that cannot be written."""


def build(pipeline: Pipeline, target: MakeTarget, claims: ClaimStore, observe: Observe | None = None) -> Worker:
    """The sink; `observe` sees every line made."""
    worker = Worker(STAGE, pipeline, clients=[ClaimSweeper(claims)])  # it has the last word on a rollout
    step = sink_step(pipeline.topics.name(names.SCORED), claims, pipeline.scope or None)
    seen = _Observed(step, observe) if observe else step
    lines = Lines()
    worker.measured.append(lines)
    bounds = StageSettings(STAGE, _IN_ORDER, _TIMEOUT_S, in_order=True)

    def make(deliveries: GroupDeliveries) -> Stage:
        files = target(deliveries, worker.fail)
        worker.clients.append(_Opened(files))
        return Stage(bounds, seen, step.recover, lines.counted(files.delivery), on_fatal=worker.fail)

    worker.add_stage(make, [pipeline.topics.name(names.SCORED), pipeline.topics.name(names.FAILURES)])
    return worker


def sink_step(scored_topic: str, claims: ClaimStore, run_id: str | None = None) -> SinkStep:
    """The step over a claim store, for the records of one run or (None) of all."""

    async def resolve(name: str) -> bytes:
        return await claims.get(name, claim_in_name(name))

    async def read(ref: RolloutRef | None, part: str, payload: Payload) -> bytes:
        if ref is None:
            raise InfrastructureError(f"the {part} travels by reference, and the event does not say of which rollout")
        return await claims.unpack(ref, part, payload)

    return SinkStep(scored_topic, resolve, read, run_id)


class _Observed:
    """The sink's step, with somebody watching."""

    def __init__(self, step: SinkStep, observe: Observe) -> None:
        self._step = step
        self._observe = observe

    def __call__(self, record: ConsumerRecord) -> Outputs | Awaitable[Outputs]:
        made = self._step(record)
        if isinstance(made, Awaitable):
            return self._later(made)
        self._observe(made)
        return made

    async def _later(self, made: Awaitable[Outputs]) -> Outputs:
        outputs = await made
        self._observe(outputs)
        return outputs


class _Opened:
    """The files as a client of the worker: opened before the first record, closed after the last."""

    def __init__(self, files: Target) -> None:
        self._files = files

    async def start(self) -> None:
        await self._files.open()

    async def close(self) -> None:
        await self._files.close()
