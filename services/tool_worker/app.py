"""The tool worker as a FastStream app."""

from __future__ import annotations

from dataclasses import dataclass

from environments.registry import Registry
from schemas import topics as names
from schemas.errors import FailureClass
from services.runtime.absence import Absences
from services.runtime.claims import ClaimStore
from services.runtime.clients import Clients
from services.runtime.control import Control
from services.runtime.failures import Failures
from services.runtime.offload import Offload
from services.runtime.scope import Scope
from services.runtime.stage import Stage, StageSettings
from services.runtime.worker import Pipeline, Worker
from services.tool_worker.step import ToolStep, ToolTools

STAGE = "tool"

_SPARE_S = 30.0
"""The stage's own deadline comes this much after the step's, which has the better message."""


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """Bounds of the tool worker; times in seconds."""

    in_flight: int
    timeout_s: float


def build(pipeline: Pipeline, settings: ToolSettings, registry: Registry, claims: ClaimStore, clients: Clients) -> Worker:
    """The tool worker."""
    topics = pipeline.topics
    control = Control(pipeline.connection, topics.name(names.CONTROL))
    offload = Offload(STAGE)
    worker = Worker(STAGE, pipeline, clients=[control, clients, offload])
    failures = Failures(topics.name(names.FAILURES), STAGE, FailureClass.TOOL)
    worker.measured.append(failures)
    absences = Absences(failures.topic, topics.name(names.TRAJECTORIES), registry)
    step = ToolStep(
        ToolTools(
            turns_topic=topics.name(names.TURNS),
            registry=registry,
            failures=failures,
            claims=claims,
            control=control,
            offload=offload,
            clients=clients,
            scope=Scope(pipeline.scope),
            timeout_s=settings.timeout_s,
        )
    )
    bounds = StageSettings(STAGE, settings.in_flight, settings.timeout_s + _SPARE_S)
    worker.add_stage(
        lambda deliveries: Stage(bounds, step, failures.of_step, absences.announced(deliveries), on_fatal=worker.fail),
        [topics.name(names.TOOL_CALLS)],
    )
    return worker
