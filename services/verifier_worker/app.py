"""The verifier worker as a FastStream app."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from environments.registry import Registry
from schemas import topics as names
from schemas.errors import FailureClass
from services.runtime.claims import ClaimStore
from services.runtime.clients import Clients
from services.runtime.control import Control
from services.runtime.failures import Failures
from services.runtime.offload import Offload
from services.runtime.scope import Scope
from services.runtime.stage import Stage, StageSettings
from services.runtime.worker import Pipeline, Worker
from services.verifier_worker.groups import GroupBounds
from services.verifier_worker.step import VerifyStep, VerifyTools

STAGE = "verifier"

_SPARE_S = 30.0
"""The stage's own deadline comes this much after the step's, which has the better message."""


@dataclass(frozen=True, slots=True)
class VerifierSettings:
    """Bounds of the verifier worker; times in seconds."""

    in_flight: int
    timeout_s: float
    scored_format: Literal["json", "avro"] = "json"
    record_judge_calls: bool = True
    groups: GroupBounds = field(default_factory=GroupBounds)
    incomplete_groups: Literal["score", "fail"] = "score"


def build(pipeline: Pipeline, settings: VerifierSettings, registry: Registry, claims: ClaimStore, clients: Clients) -> Worker:
    """The verifier worker."""
    topics = pipeline.topics
    control = Control(pipeline.connection, topics.name(names.CONTROL))
    offload = Offload(STAGE)
    worker = Worker(STAGE, pipeline, clients=[control, clients, offload])
    failures = Failures(topics.name(names.FAILURES), STAGE, FailureClass.VERIFIER)
    worker.measured.append(failures)
    step = VerifyStep(
        VerifyTools(
            scored_topic=topics.name(names.SCORED),
            registry=registry,
            failures=failures,
            claims=claims,
            control=control,
            offload=offload,
            clients=clients,
            scope=Scope(pipeline.scope),
            timeout_s=settings.timeout_s,
            scored_format=settings.scored_format,
            record_judge_calls=settings.record_judge_calls,
            groups=settings.groups,
            incomplete_groups=settings.incomplete_groups,
        )
    )
    worker.clients.append(step)
    bounds = StageSettings(STAGE, settings.in_flight, settings.timeout_s + _SPARE_S)
    worker.add_stage(
        lambda deliveries: Stage(bounds, step, failures.of_step, deliveries, on_fatal=worker.fail, keeper=step.groups),
        [topics.name(names.TRAJECTORIES)],
    )
    return worker
