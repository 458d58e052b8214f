"""The one-process pipeline: broker, topics, model and all four workers, up and down in the right order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from environments.registry import Registry
from rollstream.runner.assembly import (
    SCRIPTED,
    Parts,
    agent_worker,
    claims_of,
    endpoint_of,
    pipeline_of,
    sink_worker,
    tool_worker,
    topics_of,
    verifier_worker,
)
from rollstream.runner.watch import Watch
from rollstream.settings.model import Settings
from schemas.errors import InfrastructureError
from schemas.topics import PROMPTS, TOOL_CALLS, TRAJECTORIES, TURNS, Topics
from services.models.endpoint import ModelEndpoint
from services.runtime.admin import end_offsets, ensure_topics, set_committed
from services.runtime.connection import Connection
from services.runtime.record import TopicPartition
from services.runtime.worker import GroupDeliveries, Worker
from services.sink.app import MakeTarget, Target
from services.sink.line_files import Mode
from services.sink.paths import RunPaths
from services.sink.single_file import SingleFile

if TYPE_CHECKING:
    from rollstream.scripted import ScriptedModel

READY_TIMEOUT_S = 60.0
"""From starting the workers to all partitions open; it takes a second on an idle machine."""

_READERS = {"agent": TURNS, "admission": PROMPTS, "tool": TOOL_CALLS, "verifier": TRAJECTORIES}

Marks = Mapping[TopicPartition, int]


@asynccontextmanager
async def broker(settings: Settings, report: Callable[[str], None]) -> AsyncIterator[Connection]:
    """The configured broker, else the local one: that which runs, or one of our own until we are done.

    `report` is told of a download (the first time on a machine).
    """
    from rollstream.broker import LocalBroker, default_data_dir, find_running

    if settings.kafka.bootstrap_servers:
        yield settings.kafka.connection(settings.kafka.bootstrap_servers)
        return
    folder = settings.broker.data_dir or default_data_dir()
    running = find_running(folder)
    if running is not None and running.detached:
        yield running.connection
        return
    async with LocalBroker(folder, report=report) as connection:
        yield connection


@asynccontextmanager
async def model(settings: Settings) -> AsyncIterator[ModelEndpoint]:
    """The configured endpoint; the scripted one is served from this process on a loopback port."""
    if settings.model.url != SCRIPTED:
        yield endpoint_of(settings)
        return
    from rollstream.scripted import ScriptedModel

    server: ScriptedModel
    async with ScriptedModel() as server:
        yield endpoint_of(settings, server.base_url)


async def start_of_run(connection: Connection, topics: Topics, scope: str) -> None:
    """Let the run's own groups begin at the present end of the log, so that they do not read what earlier runs left."""
    inputs = {stage: topics.name(spec) for stage, spec in _READERS.items()}
    ends = await end_offsets(connection, list(inputs.values()))
    await asyncio.gather(
        *(
            set_committed(connection, topics.group(stage, scope), {p: o for p, o in ends.items() if p.topic == topic})
            for stage, topic in inputs.items()
        )
    )


@dataclass(frozen=True, slots=True)
class RunFiles:
    """Where a run writes, whether it goes on with what is there, and where in the log it began."""

    paths: RunPaths
    run_id: str
    mode: Mode
    since: Marks


def single_file(files: RunFiles) -> MakeTarget:
    """The run's files as the sink's target; their checkpoints are shown to Kafka as lag."""

    def make(deliveries: GroupDeliveries, on_fatal: Callable[[Exception], None]) -> Target:
        return SingleFile(
            files.paths.results,
            run_id=files.run_id,
            mode=files.mode,
            start_at=files.since,
            report=deliveries.report,
            on_fatal=on_fatal,
        )

    return make


@dataclass(slots=True)
class LocalPipeline:
    """The workers of one run in this process."""

    workers: list[Worker]
    parts: Parts

    @property
    def ready(self) -> bool:
        return all(w.ready for w in self.workers)

    @property
    def active(self) -> int:
        """Records being worked on or waiting for their commit, over all stages."""
        return sum(s.busy for w in self.workers for s in w.stages)

    def park(self) -> None:
        """Begin no further rollout and no further turn; calls under way go on to their end and are scored."""
        for worker in self.workers:
            for stage in worker.stages:
                if stage.settings.name in {"admission", "agent"}:
                    stage.close_gate()

    async def start(self) -> None:
        """Start all workers and wait until their partitions are open; raises `InfrastructureError` when they are not."""
        await asyncio.gather(*(w.start() for w in self.workers))
        end = time.monotonic() + READY_TIMEOUT_S
        while not self.ready:
            if failed := [w for w in self.workers if w.error is not None]:
                raise failed[0].error or InfrastructureError(f"worker {failed[0].name} stopped")
            if time.monotonic() > end:
                late = [w.name for w in self.workers if not w.ready]
                raise InfrastructureError(f"workers not ready within {READY_TIMEOUT_S:g} s: {', '.join(late)}")
            await asyncio.sleep(0.01)

    async def stop(self, drain_timeout_s: float) -> int:
        """Stop all workers, upstream first; the number of records left for a resume."""
        return sum(await asyncio.gather(*(w.stop(drain_timeout_s) for w in self.workers)))


@asynccontextmanager
async def local_pipeline(
    settings: Settings,
    connection: Connection,
    registry: Registry,
    endpoint: ModelEndpoint,
    files: RunFiles,
    watch: Watch,
) -> AsyncIterator[LocalPipeline]:
    """The pipeline of one run, started; stopped on the way out."""
    topics = topics_of(settings)
    ready = await ensure_topics(connection, topics, replication=settings.topics.replication_factor)
    claims = claims_of(settings)
    parts = Parts(settings, pipeline_of(settings, connection, ready.partitions, scope=files.run_id), registry, claims)
    workers = [
        agent_worker(parts, endpoint),
        tool_worker(parts),
        verifier_worker(parts),
        sink_worker(parts, single_file(files), watch.observe),
    ]
    pipeline = LocalPipeline(workers, parts)
    async with AsyncExitStack() as stack:
        stack.callback(claims.close)
        stack.push_async_callback(pipeline.stop, 0.0)
        await pipeline.start()
        yield pipeline
