"""One shape for every worker: a FastStream app over one or more stages, and the clients that the stages use.

Invariant: clients start before the first record can arrive and close after the last one is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import structlog
from aiokafka import AIOKafkaProducer
from faststream import FastStream
from faststream.kafka import KafkaBroker

from schemas.topics import FAILURES, SCORED, Topics
from services.runtime.at_least_once import AtLeastOnce
from services.runtime.batches import MAX_BATCH_BYTES, Batches
from services.runtime.connection import Connection
from services.runtime.delivery import Delivery
from services.runtime.exactly_once import MAX_REQUEST_BYTES, ExactlyOnce, stop_quietly
from services.runtime.offsets import Offsets
from services.runtime.record import Step, TopicPartition
from services.runtime.security import security_of
from services.runtime.stage import Stage
from services.runtime.subscription import GroupSettings, Subscription
from services.tracing.step import TracedKeeper, TracedStep
from services.tracing.tracer import Tracer

log = structlog.get_logger()


class Client(Protocol):
    """Something a worker uses that has to be started and closed."""

    async def start(self) -> None: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What all workers of one pipeline agree on.

    `partitions` is the number of partitions of each topic. `scope` sets a run's own workers apart from shared ones: it
    is part of their group names, and they leave the records of other runs alone. `tracer` is None where nothing is traced.
    """

    connection: Connection
    topics: Topics
    partitions: Mapping[str, int]
    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once"
    scope: str = ""
    instance_id: str | None = None
    session_timeout_s: float = 6.0
    tracer: Tracer | None = None

    def group(self, stage: str) -> GroupSettings:
        """Consumer group of a stage."""
        instance = f"{self.instance_id}.{stage}" if self.instance_id else None
        return GroupSettings(self.topics.group(stage, self.scope), self.session_timeout_s, self.session_timeout_s / 4, instance)


@dataclass(slots=True)
class Worker:
    """A worker process, or a part of one: `run` has all four in one process.

    `measured`: what has counts for `/metrics` besides stages and clients (`services.metrics`). `started`: its clients
    have been.
    """

    name: str
    pipeline: Pipeline
    clients: list[Client] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    broker: KafkaBroker = field(init=False)
    failed: asyncio.Event = field(default_factory=asyncio.Event)
    measured: list[object] = field(default_factory=list)
    error: Exception | None = None
    started: bool = False
    _stopped: bool = False
    _closers: list[Callable[[], Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        connection = self.pipeline.connection
        self.broker = KafkaBroker(
            connection.bootstrap_servers.split(","),
            client_id=f"rollstream-{self.name}",
            security=security_of(connection),
            consumer_only=True,
            apply_types=False,
            logger=None,
        )
        if self.pipeline.tracer is not None:
            self.clients = [self.pipeline.tracer, *self.clients]  # the first, hence closed last

    @property
    def app(self) -> FastStream:
        """The FastStream application (for its AsyncAPI document and its command line)."""
        return FastStream(self.broker)

    @property
    def ready(self) -> bool:
        """All stages have partitions, or know that they have none, and all of them are open."""
        return not self.failed.is_set() and bool(self.stages) and all(s.ready for s in self.stages)

    def add_stage(self, make: Callable[[GroupDeliveries], Stage], topics: Sequence[str]) -> Stage:
        """Subscribe a stage to topics; `make` gets the deliveries of the stage's group."""
        holder: list[Subscription] = []
        stage = make(self._deliveries(holder))
        group = self.pipeline.group(stage.settings.name)
        holder.append(Subscription(self.broker, stage, topics, group))
        self.stages.append(stage)
        if self.pipeline.tracer is not None:
            _trace(stage, self.pipeline, self.pipeline.tracer)
        return stage

    def fail(self, error: Exception) -> None:
        """A stage cannot go on: the worker is to stop with this error."""
        self.error = self.error or error
        self.failed.set()

    async def start(self) -> None:
        """Start clients, then consumers. Returns when the group has answered; `ready` follows when lanes are open."""
        await asyncio.gather(*(client.start() for client in self.clients))
        self.started = True
        for stage in self.stages:
            stage.start()
        await self.broker.start()

    async def stop(self, drain_timeout_s: float) -> int:
        """Drain, then close everything; the number of records left to whoever has the partitions next.

        A second call does nothing.
        """
        if self._stopped:
            return 0
        self._stopped = True
        left = sum(await asyncio.gather(*(s.drain(drain_timeout_s) for s in self.stages)))
        await asyncio.gather(*(s.close() for s in self.stages))
        await self.broker.stop()
        for close in self._closers:
            await close()
        await asyncio.gather(*(client.close() for client in reversed(self.clients)))
        return left

    def hurry(self) -> None:
        """End a drain now: what still runs is left to whoever has the partitions next."""
        for stage in self.stages:
            stage.hurry()

    def _deliveries(self, holder: list[Subscription]) -> GroupDeliveries:
        return GroupDeliveries(self.pipeline, holder, self._closers)


def _trace(stage: Stage, pipeline: Pipeline, tracer: Tracer) -> None:
    ends = pipeline.topics.name(SCORED), pipeline.topics.name(FAILURES)

    def around(step: Step) -> TracedStep:
        return TracedStep(step, stage.settings.name, tracer, *ends)

    stage.wrap(around, lambda keeper: TracedKeeper(keeper, around(lambda _: ()).together))


class GroupDeliveries:
    """Deliveries of one stage, with what its partitions share. Nothing connects before the first partition comes."""

    def __init__(self, pipeline: Pipeline, holder: list[Subscription], closers: list[Callable[[], Any]]) -> None:
        self._pipeline = pipeline
        self._holder = holder
        self._producer: _SharedProducer | None = None
        self._offsets: Offsets | None = None
        self._strict: Offsets | None = None
        closers.append(self.close)

    def __call__(self, partition: TopicPartition) -> Delivery:
        pipeline, subscription = self._pipeline, self._holder[0]
        if pipeline.delivery == "exactly_once":
            return self.exactly_once(partition)
        if self._offsets is None:
            self._offsets = Offsets(pipeline.connection, subscription.group, strict=False)
        if self._producer is None:
            self._producer = _SharedProducer(pipeline.connection, pipeline.partitions)
        return AtLeastOnce(self._producer.batches, partition, self._offsets, subscription.commit)

    def exactly_once(self, partition: TopicPartition) -> Delivery:
        """A transactional delivery, whatever the pipeline's mode: for files whose names depend on who commits."""
        pipeline, group = self._pipeline, self._holder[0].group
        if self._strict is None:
            self._strict = Offsets(pipeline.connection, group, strict=True)
        return ExactlyOnce(pipeline.connection, group, partition, pipeline.partitions, self._strict)

    async def report(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit plain offsets, to show lag where something else than Kafka decides where a restart begins."""
        subscription = self._holder[0]
        for partition, offset in offsets.items() if subscription.running else ():
            await subscription.commit(partition, offset, "")

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.close()
        for offsets in (self._offsets, self._strict):
            if offsets is not None:
                await offsets.close()


class _SharedProducer:
    """One idempotent producer for all partitions of a stage, started by the first delivery that needs it."""

    def __init__(self, connection: Connection, partitions: Mapping[str, int]) -> None:
        self._connection = connection
        self._partitions = partitions
        self._producer: AIOKafkaProducer | None = None
        self._starting = asyncio.Lock()

    async def batches(self) -> Batches:
        """The producer's batches; starts it the first time."""
        async with self._starting:
            if self._producer is None:
                producer = AIOKafkaProducer(
                    **self._connection.kwargs(),
                    enable_idempotence=True,
                    max_batch_size=MAX_BATCH_BYTES,
                    max_request_size=MAX_REQUEST_BYTES,
                )
                await producer.start()
                self._producer = producer
        return Batches(self._producer, self._partitions)

    async def close(self) -> None:
        if self._producer is not None:
            await stop_quietly(self._producer)
