"""Trajectories of the log through the pipeline's own verifier, into a scoring of their own (platform.md C5).

Owns the worker of a scoring and when it is done. Invariants: it is the verifier worker's step in the runtime of all workers, so
a scoring counts each trajectory once whatever is killed, and the same command with `resume` goes on where it stopped; a
re-verification asks nothing of the control topic, so a run that was cancelled can be scored.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from environments.registry import Registry
from rollstream.reverify.guard import UNSAFE, ReverifyError, Stamp, Verifier, check
from rollstream.reverify.scoring_topics import ScoringTopics, scoring_topics
from rollstream.reverify.slice import Reach, Slice, Survey, Taken, reach_of, survey
from rollstream.runner.assembly import Parts, clients_of, models_of, pipeline_of
from rollstream.runner.local import models
from rollstream.settings.model import Settings
from schemas.errors import DataError, FailureClass
from schemas.events import Trajectory
from schemas.topics import CONTROL, FAILURES, SCORED, TRAJECTORIES, Topics
from services.runtime.admin import committed, ensure_topics, set_committed
from services.runtime.claims import ClaimStore
from services.runtime.connection import Connection
from services.runtime.control import Control
from services.runtime.failures import Failures, place_of
from services.runtime.lane import Lane
from services.runtime.offload import Offload
from services.runtime.record import Answer, ConsumerRecord, Together
from services.runtime.scope import Scope
from services.runtime.stage import Stage, StageSettings
from services.runtime.worker import Worker
from services.verifier_worker.groups import GroupBounds
from services.verifier_worker.line import SCORING
from services.verifier_worker.step import VerifyStep, VerifyTools

STAGE = "verifier"

_SPARE_S = 30.0
"""The stage's own deadline comes this much after the step's, as in the verifier worker."""

_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class LogRequest:
    """What of the log is scored again, as the scoring `scoring`. `resume` goes on with one that exists, or helps with it."""

    scoring: str
    wanted: Slice = field(default_factory=Slice)
    force: bool = False
    resume: bool = False


@dataclass(frozen=True, slots=True)
class Replayed:
    """A scoring that is done: its topics, what was in the slice by environment, and who verified it."""

    topics: ScoringTopics
    scoring: str
    count: Mapping[str, int]
    verifiers: Mapping[str, Verifier]
    warnings: Sequence[str] = ()


Progress = Callable[[int, int], None]


async def replay(
    request: LogRequest, settings: Settings, connection: Connection, registry: Registry, claims: ClaimStore, progress: Progress
) -> Replayed:
    """Score the slice, into topics of its own; returns when all of it is committed.

    Raises `ReverifyError` for a request that cannot be met (nothing is written then), `InfrastructureError` and `AdminError`
    when the broker cannot be used, `StopWorkerError` when the worker cannot go on.
    """
    live = Topics(settings.topics.prefix, settings.topics.partitions)
    taken = Taken(request.wanted, await reach_of(connection, live, request.wanted))
    found = await survey(connection, live, taken)
    verifiers = _verifiers(registry, found)
    safe = check(verifiers.values(), with_state=True, force=request.force)
    scoring = request.scoring if safe else UNSAFE + request.scoring
    topics = scoring_topics(live, scoring)
    if not found.count.total():
        raise ReverifyError(f"no trajectory of the log is in the slice: {request.wanted.as_json() or 'everything'}")
    partitions = await _placed(request, connection, topics, taken.reach, settings)
    async with models(settings) as endpoints:
        parts = Parts(settings, pipeline_of(settings, connection, partitions), registry, claims, endpoints)
        parts = replace(parts, pipeline=replace(parts.pipeline, topics=topics))
        step = ReplayStep(taken, found)
        worker = _worker(parts, step, {v: x.stamp for v, x in verifiers.items()}, scoring)
        await _run(worker, step, progress, settings.deadlines.drain_timeout_s)
        return Replayed(topics, scoring, found.count, verifiers, endpoints.warnings)


class ReplayStep:
    """The verifier's step for what is in the slice; everything else is finished without a word. Also the stage's keeper."""

    step: VerifyStep

    def __init__(self, taken: Taken, found: Survey) -> None:
        self.taken = taken
        self.found = found
        self.begun = 0

    def __call__(self, record: ConsumerRecord) -> Answer:
        event = self.taken.event(record)
        if event is None:
            return ()
        self.begun += not event.absent
        return self.step(record)

    @property
    def full(self) -> bool:
        return self.step.groups.full

    def forget(self, partition: int) -> None:
        self.step.groups.forget(partition)

    def remember(self, record: ConsumerRecord) -> None:
        self.step.groups.remember(record)

    def due(self, partition: int, *, caught_up: bool, stuck: bool) -> Together | None:
        """A group waits no longer than until the slice has been read, whatever the log goes on with."""
        return self.step.groups.due(partition, caught_up=caught_up or self._is_past(partition), stuck=stuck)

    def is_done(self, stage: Stage) -> bool:
        """Whether the partitions of this process have been read to the end of the slice and all of it is committed."""
        lanes = stage.lanes.values()
        return stage.ready and not stage.in_flight and all(self._past(lane) and not lane.held for lane in lanes)

    def watch(self, stage: Stage) -> None:
        """Look at the lanes of `stage`."""
        self._stage = stage

    def _is_past(self, partition: int) -> bool:
        return all(self._past(lane) for tp, lane in self._stage.lanes.items() if tp.partition == partition)

    def _past(self, lane: Lane) -> bool:
        last = self.found.last.get(lane.partition)
        return last is None or (lane.read_next is not None and lane.read_next > last)


def _verifiers(registry: Registry, found: Survey) -> dict[str, Verifier]:
    try:
        return {variant: Verifier.of(registry, variant) for variant in found.count}
    except DataError as e:
        raise ReverifyError(f"the slice holds what cannot be verified here: {e}; narrow it with --environment") from e


async def _placed(
    request: LogRequest, connection: Connection, topics: ScoringTopics, reach: Reach, settings: Settings
) -> Mapping[str, int]:
    """Make the scoring's topics and let its group begin where the slice does; raises `ReverifyError` when it exists."""
    count = len(reach.end)
    ready = await ensure_topics(
        connection, replace(topics, partitions=count), replication=settings.topics.replication_factor, fewer_ok=True
    )
    group = topics.group(STAGE)
    begun = await committed(connection, group, reach.first)
    if not request.resume and (begun or topics.name(SCORED) not in ready.created):
        raise ReverifyError(f"scoring {topics.scoring} exists: --resume goes on with it, or choose another --scoring")
    if not begun:
        await set_committed(connection, group, reach.first)
    return {**ready.partitions, topics.name(TRAJECTORIES): count}


def _worker(parts: Parts, step: ReplayStep, stamps: Mapping[str, Stamp], scoring: str) -> Worker:
    """The verifier worker over the slice."""
    s, pipeline, offload = parts.settings, parts.pipeline, Offload(STAGE)
    timeout_s = s.deadlines.verify_timeout_s
    clients = clients_of(s, models_of(parts, timeout_s, judges=True))
    failures = Failures(pipeline.topics.name(FAILURES), STAGE, FailureClass.VERIFIER)

    def stamp(trajectory: Trajectory, record: ConsumerRecord) -> Mapping[str, Any]:
        own = stamps[trajectory.environment]
        return {SCORING: own.fields(scoring, trajectory.ref.run_id, place_of(record))}

    step.step = VerifyStep(
        VerifyTools(
            scored_topic=pipeline.topics.name(SCORED),
            registry=parts.registry,
            failures=failures,
            claims=parts.claims,
            control=Control(pipeline.connection, pipeline.topics.name(CONTROL)),  # never started: it knows of no cancelled run
            offload=offload,
            clients=clients,
            scope=_Everything(),
            timeout_s=timeout_s,
            now=lambda: math.inf,  # every deadline of a group has passed: what the log does not hold will not come
            record_judge_calls=s.verifier.record_judge_calls,
            groups=GroupBounds(s.groups.timeout_s, s.groups.limit, s.groups.memory_bytes, s.groups.disk_bytes),
            incomplete_groups=s.groups.incomplete,
            stamp=stamp,
        )
    )
    worker = Worker(STAGE, pipeline, clients=[clients, offload, step.step])
    bounds = StageSettings(STAGE, s.verifier.in_flight, timeout_s + _SPARE_S)
    stage = worker.add_stage(
        lambda deliveries: Stage(bounds, step, failures.of_step, deliveries, on_fatal=worker.fail, keeper=step),
        [pipeline.topics.name(TRAJECTORIES)],
    )
    step.watch(stage)
    return worker


class _Everything(Scope):
    """No record is excluded: a slice may hold runs that bring their own workers."""

    def excludes(self, record: ConsumerRecord) -> bool:  # noqa: ARG002 - the base's signature
        return False


async def _run(worker: Worker, step: ReplayStep, progress: Progress, drain_timeout_s: float) -> None:
    """Start the worker, and stop it when the slice is done."""
    (stage,) = worker.stages
    try:
        await worker.start()
        while not (stage.assigned and step.is_done(stage)):
            progress(max(0, step.begun - stage.in_flight), step.found.count.total())
            if worker.error is not None:
                raise worker.error
            await asyncio.sleep(_POLL_S)
    finally:
        await worker.stop(drain_timeout_s)
