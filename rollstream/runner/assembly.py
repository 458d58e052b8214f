"""Settings to workers: the one place where configuration meets the services.

Invariant: `run` and `worker` build their workers here, so what works in one process works in many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version

from environments.registry import Registry
from rollstream.settings.model import Model, Settings
from schemas.errors import InfrastructureError
from schemas.topics import Topics
from services.agent_worker import app as agent_app
from services.code_server.client import HttpCodeServer
from services.models.endpoint import ModelEndpoint, RetryBudget, Timeouts
from services.models.named import Endpoints, NamedModels
from services.pages.client import HttpPages
from services.runtime.admin import TopicsReady, ensure_topics
from services.runtime.claims import ClaimStore
from services.runtime.clients import Clients
from services.runtime.connection import Connection
from services.runtime.pool import ProcessPool
from services.runtime.worker import Pipeline, Worker
from services.sandbox.sandbox import SandboxService
from services.sandbox.sessions import LiveSessions, Upkeep
from services.sink import app as sink_app
from services.tool_worker import app as tool_app
from services.tracing.otlp import otlp_spans
from services.tracing.tracer import Tracer
from services.verifier_worker import app as verifier_app
from services.verifier_worker.groups import GroupBounds

STAGES = ("agent", "tool", "verifier", "sink")

SCRIPTED = "scripted"

MODEL_SHARE = 0.9
"""Part of a stage's deadline that one model call may take: a judge that does not answer is then recorded as that, not as a
verifier that did not return."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the workers of one process share."""

    settings: Settings
    pipeline: Pipeline
    registry: Registry
    claims: ClaimStore
    endpoints: Endpoints = field(default_factory=Endpoints)


def topics_of(settings: Settings) -> Topics:
    """The pipeline's topics as configured."""
    return Topics(settings.topics.prefix, settings.topics.partitions)


async def topics_ready(settings: Settings, connection: Connection) -> TopicsReady:
    """The pipeline's topics, created or checked; a number of partitions counts only where somebody chose it."""
    return await ensure_topics(
        connection,
        topics_of(settings),
        replication=settings.topics.replication_factor,
        fewer_ok="partitions" not in settings.topics.model_fields_set,
    )


def claims_of(settings: Settings) -> ClaimStore:
    """The claim store as configured."""
    return ClaimStore(settings.claims.location, settings.claims.cache_bytes)


def pipeline_of(
    settings: Settings,
    connection: Connection,
    partitions: Mapping[str, int],
    *,
    scope: str = "",
    instance_id: str | None = None,
) -> Pipeline:
    """The pipeline as configured, over topics that exist."""
    topics, tracer = topics_of(settings), tracer_of(settings)
    return Pipeline(connection, topics, partitions, settings.delivery.value, scope, instance_id, tracer=tracer)


def tracer_of(settings: Settings) -> Tracer | None:
    """What traces rollouts, as configured; raises `InfrastructureError` when the extra `tracing` is not installed."""
    s = settings.tracing
    return Tracer(otlp_spans(s.url, version("rollstream")), s.sample) if s.url is not None else None


def endpoints_of(settings: Settings, scripted_url: str | None = None) -> Endpoints:
    """All models as configured; `scripted_url` is where the scripted server is, once it has a port.

    Without it a scripted policy is none, and any other scripted model an `InfrastructureError`.
    """
    policy = None if settings.model.url == SCRIPTED and scripted_url is None else settings.model
    homeless = [n for n, m in settings.models.items() if m.url == SCRIPTED and scripted_url is None]
    if homeless:
        raise InfrastructureError(
            f"models.{homeless[0]}.url: a worker of its own serves no scripted model; start one with "
            "`python -m rollstream.scripted --port 8001` and name http://127.0.0.1:8001/v1"
        )
    named = {name: _endpoint(model, settings, scripted_url) for name, model in settings.models.items()}
    return Endpoints(_endpoint(policy, settings, scripted_url) if policy else None, named)


def _endpoint(model: Model, settings: Settings, scripted_url: str | None) -> ModelEndpoint:
    deadlines = settings.deadlines
    url, *replicas = (scripted_url,) if scripted_url and model.url == SCRIPTED else model.urls
    return ModelEndpoint(
        base_url=url,
        replicas=tuple(replicas),
        options=model.options,
        name=model.name,
        api_key=model.api_key,
        timeouts=Timeouts(
            connect_s=model.connect_timeout_s,
            first_byte_s=model.call_timeout_s,
            call_s=max(model.call_timeout_s, deadlines.rollout_timeout_s),
        ),
        retries=RetryBudget(max_attempts=model.max_tries),
        max_concurrency=model.concurrency,
    )


def models_of(parts: Parts, deadline_s: float, *, judges: bool = False) -> NamedModels:
    """The models for environment code that must end within `deadline_s`."""
    return NamedModels(parts.endpoints, budget_s=MODEL_SHARE * deadline_s, judges=judges)


def clients_of(settings: Settings, models: NamedModels | None = None) -> Clients:
    """What environment code may use on a worker, as configured: models, sandbox, sessions, process pool, code server, pages."""
    s = settings.code_server
    code_server = HttpCodeServer(s.url, concurrency=s.concurrency) if s.url else None
    pool = ProcessPool(settings.verifier.processes, timeout_s=settings.deadlines.verify_timeout_s)
    sandbox = SandboxService(settings.sandbox.options)
    sessions = LiveSessions(sandbox.launcher, settings.sessions.bounds)
    pages = HttpPages()
    owned = [service for service in (models, code_server, pages, pool, sandbox, Upkeep(sessions)) if service is not None]
    return Clients(
        models=models if models is not None else {},
        sandbox=sandbox,
        sessions=sessions,
        pool=pool,
        code_server=code_server,
        pages=pages,
        data_dir=settings.environments.folder,
        owned=owned,
    )


def agent_worker(parts: Parts) -> Worker:
    """The agent worker; raises `InfrastructureError` when there is no policy."""
    s = parts.settings
    if parts.endpoints.policy is None:
        raise InfrastructureError("the agent worker needs a policy: set `model.url` and `model.name`")
    models = models_of(parts, agent_app.ADMISSION_TIMEOUT_S)
    bounds = agent_app.AgentSettings(
        s.agent.in_flight, s.deadlines.rollout_timeout_s, s.admission.high_water, s.admission.low_water
    )
    clients = Clients(models=models, data_dir=s.environments.folder)
    return agent_app.build(parts.pipeline, bounds, parts.registry, parts.claims, models.clients, clients)


def tool_worker(parts: Parts) -> Worker:
    """The tool worker."""
    s = parts.settings
    bounds = tool_app.ToolSettings(s.tool.in_flight, s.deadlines.tool_timeout_s)
    models = models_of(parts, s.deadlines.tool_timeout_s)
    return tool_app.build(parts.pipeline, bounds, parts.registry, parts.claims, clients_of(s, models))


def verifier_worker(parts: Parts) -> Worker:
    """The verifier worker."""
    s = parts.settings
    bounds = verifier_app.VerifierSettings(
        s.verifier.in_flight,
        s.deadlines.verify_timeout_s,
        s.scored_format,
        s.verifier.record_judge_calls,
        GroupBounds(s.groups.timeout_s, s.groups.limit, s.groups.memory_bytes, s.groups.disk_bytes),
        s.groups.incomplete,
    )
    models = models_of(parts, s.deadlines.verify_timeout_s, judges=True)
    return verifier_app.build(parts.pipeline, bounds, parts.registry, parts.claims, clients_of(s, models))


def sink_worker(parts: Parts, target: sink_app.MakeTarget, observe: sink_app.Observe | None = None) -> Worker:
    """The sink."""
    return sink_app.build(parts.pipeline, target, parts.claims, observe)
