"""A worker process: one stage over topics that exist or are created, until a signal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from environments.own import declare
from environments.registry import Registry
from rollstream.runner.assembly import (
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
from rollstream.runner.process import serve
from rollstream.settings.model import Settings
from schemas.errors import InfrastructureError
from services.runtime import collector
from services.runtime.connection import Connection
from services.runtime.health import Health
from services.runtime.worker import GroupDeliveries, Worker
from services.sink.app import MakeTarget, Target
from services.sink.directory import Directory
from services.sink.line_files import Mode
from services.sink.single_file import SingleFile


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """Which stage, and for the sink where lines go: a results file of one run, or a directory (path or URL) of all."""

    stage: str
    output: str | Path | None = None
    run: str | None = None
    instance: str | None = None


async def start_worker(request: WorkerRequest, settings: Settings, connection: Connection) -> int:
    """Run the worker until a signal; its exit code. Raises `InfrastructureError` for a request that cannot be met."""
    ready = await topics_ready(settings, connection)
    scope = request.run or "" if isinstance(request.output, Path) else ""
    pipeline = pipeline_of(settings, connection, ready.partitions, scope=scope, instance_id=request.instance)
    endpoints = endpoints_of(settings)
    declare(settings.variants)
    parts = Parts(settings, pipeline, Registry.load(), claims_of(settings), endpoints)
    worker = _make(request, parts)
    collector.settle()
    health = Health([worker], settings.health.host, settings.health.port)
    try:
        return await serve([worker], health, settings.deadlines.drain_timeout_s)
    finally:
        parts.claims.close()


def _make(request: WorkerRequest, parts: Parts) -> Worker:
    if request.stage == "sink":
        return sink_worker(parts, _target(request))
    if request.stage == "agent" and parts.endpoints.policy is None:
        raise InfrastructureError(
            "the agent worker needs a model: --model URL/NAME (for a try-out: `python -m rollstream.scripted --port 8001`, "
            "then --model http://127.0.0.1:8001/v1/scripted)"
        )
    return {"agent": agent_worker, "tool": tool_worker, "verifier": verifier_worker}[request.stage](parts)


def _target(request: WorkerRequest) -> MakeTarget:
    output = request.output
    if output is None:
        raise InfrastructureError("the sink needs an output")

    def make(deliveries: GroupDeliveries, on_fatal: Callable[[Exception], None]) -> Target:
        if not isinstance(output, Path):
            return Directory(output, deliveries.exactly_once, on_fatal=on_fatal)
        if request.run is None:
            raise InfrastructureError(f"{output} holds one run; name it with --run, or give a directory for all runs")
        mode = Mode.CONTINUE
        return SingleFile(output, run_id=request.run, mode=mode, report=deliveries.report, on_fatal=on_fatal)

    return make
