"""The one-process pipeline: broker, topics, model and all four workers, up and down in the right order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from environments.registry import Registry
from rollstream.runner.assembly import (
    SCRIPTED,
    Parts,
    agent_worker,
    claims_of,
    endpoints_of,
    pipeline_of,
    sink_worker,
    tool_worker,
    topics_ready,
    verifier_worker,
)
from rollstream.runner.watch import Watch
from rollstream.settings.model import Settings
from schemas.errors import InfrastructureError
from schemas.topics import PROMPTS, TOOL_CALLS, TRAJECTORIES, TURNS, Topics
from services.models.named import Endpoints
from services.runtime.admin import end_offsets, set_committed
from services.runtime.connection import Connection
from services.runtime.record import TopicPartition
from services.runtime.worker import GroupDeliveries, Worker
from services.sink.app import Target
from services.sink.line_files import Mode
from services.sink.paths import RunPaths
from services.sink.single_file import SingleFile

if TYPE_CHECKING:
    from rollstream.scripted import ScriptedModel

READY_TIMEOUT_S = 60.0
"""From starting the workers to all partitions open; it takes a second on an idle machine."""

_READERS = {"agent": TURNS, "admission": PROMPTS, "tool": TOOL_CALLS, "verifier": TRAJECTORIES}

Marks = Mapping[TopicPartition, int]

During = Callable[[Coroutine[Any, Any, None]], Awaitable[None]]


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
async def models(settings: Settings) -> AsyncIterator[Endpoints]:
    """The configured endpoints; scripted ones are served from this process on a loopback port."""
    if SCRIPTED not in {settings.model.url, *(m.url for m in settings.models.values())}:
        yield endpoints_of(settings)
        return
    from rollstream.scripted import ScriptedModel

    server: ScriptedModel
    async with ScriptedModel() as server:
        yield endpoints_of(settings, server.base_url)


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


class RunSink:
    """The run's files as the sink's target: locked before anything of a former run is touched, handed to the sink later.

    Checkpoints are shown to Kafka as lag once the sink has them.
    """

    def __init__(self, paths: RunPaths, run_id: str, mode: Mode, since: Marks) -> None:
        self.run_id = run_id
        self._deliveries: GroupDeliveries | None = None
        self._tell: Callable[[Exception], None] | None = None
        self._files = SingleFile(
            paths.results, run_id=run_id, mode=mode, start_at=since, report=self._report, on_fatal=self._on_fatal
        )

    async def open(self) -> None:
        """Lock the files and bring them to where the run begins; raises `SinkStoppedError`."""
        await self._files.open()

    def target(self, deliveries: GroupDeliveries, on_fatal: Callable[[Exception], None]) -> Target:
        """Hand the files to the sink, which closes them."""
        self._deliveries, self._tell = deliveries, on_fatal
        return self._files

    async def close(self) -> None:
        """Let go of files that the sink never got."""
        if self._deliveries is None:
            await self._files.close()

    async def _report(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self._deliveries is not None:
            await self._deliveries.report(offsets)

    def _on_fatal(self, error: Exception) -> None:
        if self._tell is not None:
            self._tell(error)


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
        """Stop all workers; the number of records left for a resume."""
        return sum(await asyncio.gather(*(w.stop(drain_timeout_s) for w in self.workers)))


@asynccontextmanager
async def local_pipeline(
    settings: Settings,
    connection: Connection,
    registry: Registry,
    endpoints: Endpoints,
    sink: RunSink,
    watch: Watch,
    during: During,
) -> AsyncIterator[LocalPipeline]:
    """The pipeline of one run, started (`during` may cut that short); stopped on the way out."""
    ready = await topics_ready(settings, connection)
    claims = claims_of(settings)
    pipe = pipeline_of(settings, connection, ready.partitions, scope=sink.run_id)
    parts = Parts(settings, pipe, registry, claims, endpoints)
    workers = [
        agent_worker(parts),
        tool_worker(parts),
        verifier_worker(parts),
        sink_worker(parts, sink.target, watch.observe),
    ]
    pipeline = LocalPipeline(workers, parts)
    async with AsyncExitStack() as stack:
        stack.callback(claims.close)
        stack.push_async_callback(pipeline.stop, 0.0)
        await during(pipeline.start())
        yield pipeline
