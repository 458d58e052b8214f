"""The agent worker as a FastStream app: one stage for prompts, one for turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from environments.registry import Registry
from schemas import topics as names
from schemas.errors import FailureClass
from services.agent_worker.admission import Admission, AdmissionTools
from services.agent_worker.seen import REPLAY
from services.agent_worker.step import TurnStep, TurnTools
from services.models.client import PolicyClient
from services.runtime.absence import Absences
from services.runtime.claims import ClaimStore
from services.runtime.clients import Clients
from services.runtime.control import Control
from services.runtime.failures import Failures
from services.runtime.offload import Offload
from services.runtime.pressure import Marks, Pressure
from services.runtime.scope import Scope
from services.runtime.stage import Stage, StageSettings
from services.runtime.worker import Pipeline, Worker

STAGE = "agent"
ADMISSION = "admission"

_ADMISSION_CONCURRENCY = 64
"""Prompts whose seeding is awaited at once; prompts without a seed are admitted on the spot."""

ADMISSION_TIMEOUT_S = 300.0
"""Until a prompt must be admitted, its seed included."""

_SPARE_S = 60.0
"""The stage's own deadline comes this much after the rollout's, which has the better message."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Bounds of the agent worker; times in seconds."""

    in_flight: int
    rollout_timeout_s: float
    high_water: int
    low_water: int


def build(
    pipeline: Pipeline,
    settings: AgentSettings,
    registry: Registry,
    claims: ClaimStore,
    models: Mapping[str, PolicyClient],
    clients: Clients,
) -> Worker:
    """The agent worker. `models` are what agents call, by name, with `policy` among them; `clients` are for seeds."""
    topics, scope = pipeline.topics, Scope(pipeline.scope)
    control = Control(pipeline.connection, topics.name(names.CONTROL))
    # A pipeline without a sink of ours is fine: a trainer may read the scored rollouts itself.
    optional = frozenset({topics.name(names.SCORED)})
    pressure = Pressure(pipeline.connection, _readers(pipeline), pipeline.partitions, _marks(settings), optional)
    offload = Offload(ADMISSION)
    distinct = {id(client): client for client in models.values()}.values()  # names may share a client
    worker = Worker(STAGE, pipeline, clients=[*distinct, control, pressure, clients, offload])
    failures = Failures(topics.name(names.FAILURES), STAGE, FailureClass.INFRASTRUCTURE)
    worker.measured.append(failures)
    absences = Absences(failures.topic, topics.name(names.TRAJECTORIES), registry)
    admission = Admission(
        AdmissionTools(
            turns_topic=topics.name(names.TURNS),
            tool_calls_topic=topics.name(names.TOOL_CALLS),
            registry=registry,
            failures=failures,
            claims=claims,
            control=control,
            pressure=pressure,
            offload=offload,
            clients=clients,
            scope=scope,
            rollout_timeout_s=settings.rollout_timeout_s,
        )
    )
    turns = TurnStep(
        TurnTools(
            turns_topic=topics.name(names.TURNS),
            tool_calls_topic=topics.name(names.TOOL_CALLS),
            trajectories_topic=topics.name(names.TRAJECTORIES),
            registry=registry,
            models=models,
            failures=failures,
            claims=claims,
            control=control,
            scope=scope,
        )
    )
    # Continuing turns go before new prompts: their stage has the worker's concurrency, admission waits for pressure.
    turn_bounds = StageSettings(STAGE, settings.in_flight, settings.rollout_timeout_s + _SPARE_S)
    worker.add_stage(
        lambda deliveries: Stage(turn_bounds, turns, failures.of_step, absences.announced(deliveries), on_fatal=worker.fail),
        [topics.name(names.TURNS)],
    )
    admission_bounds = StageSettings(ADMISSION, _ADMISSION_CONCURRENCY, ADMISSION_TIMEOUT_S, replay=REPLAY)
    worker.add_stage(
        lambda deliveries: Stage(
            admission_bounds,
            admission,
            failures.of_step,
            absences.announced(deliveries),
            gate=lambda: pressure.may_admit() and not control.is_paused(pipeline.scope),
            on_fatal=worker.fail,
            memory=admission,
        ),
        [topics.name(names.PROMPTS)],
    )
    return worker


def _readers(pipeline: Pipeline) -> dict[str, str]:
    """The topics between admission and the score, each with the group that reads it."""
    readers = {names.TURNS: STAGE, names.TOOL_CALLS: "tool", names.TRAJECTORIES: "verifier", names.SCORED: "sink"}
    return {pipeline.topics.name(t): pipeline.topics.group(g, pipeline.scope) for t, g in readers.items()}


def _marks(settings: AgentSettings) -> Marks:
    return Marks(settings.high_water, settings.low_water)
