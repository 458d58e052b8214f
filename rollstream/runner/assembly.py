"""Settings to workers: the one place where configuration meets the services.

Invariant: `run` and `worker` build their workers here, so what works in one process works in many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from environments.registry import Registry
from rollstream.settings.model import Settings
from schemas.topics import Topics
from services.agent_worker import app as agent_app
from services.code_server.client import HttpCodeServer
from services.models.client import PolicyClient
from services.models.endpoint import ModelEndpoint, RetryBudget, Timeouts
from services.runtime.admin import TopicsReady, ensure_topics
from services.runtime.claims import ClaimStore
from services.runtime.clients import Clients
from services.runtime.connection import Connection
from services.runtime.pool import ProcessPool
from services.runtime.worker import Pipeline, Worker
from services.sandbox.sandbox import SandboxService
from services.sink import app as sink_app
from services.tool_worker import app as tool_app
from services.verifier_worker import app as verifier_app

STAGES = ("agent", "tool", "verifier", "sink")

SCRIPTED = "scripted"


@dataclass(frozen=True, slots=True)
class Parts:
    """What the workers of one process share."""

    settings: Settings
    pipeline: Pipeline
    registry: Registry
    claims: ClaimStore


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
    return Pipeline(connection, topics_of(settings), partitions, settings.delivery.value, scope, instance_id)


def endpoint_of(settings: Settings, url: str | None = None) -> ModelEndpoint:
    """The policy's endpoint as configured; `url` replaces the base URL (of the scripted server, once it has a port)."""
    model, deadlines = settings.model, settings.deadlines
    return ModelEndpoint(
        base_url=url or model.url,
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


def clients_of(settings: Settings) -> Clients:
    """What environment code may use on a worker, as configured: models, sandbox, sessions, process pool, code server."""
    s = settings.code_server
    code_server = HttpCodeServer(s.url, concurrency=s.concurrency) if s.url else None
    pool = ProcessPool(settings.verifier.processes, timeout_s=settings.deadlines.verify_timeout_s)
    sandbox = SandboxService(settings.sandbox.options)
    owned = [service for service in (code_server, pool, sandbox) if service is not None]
    return Clients(code_server=code_server, pool=pool, sandbox=sandbox, owned=owned)


def agent_worker(parts: Parts, endpoint: ModelEndpoint) -> Worker:
    """The agent worker."""
    s = parts.settings
    bounds = agent_app.AgentSettings(
        s.agent.in_flight, s.deadlines.rollout_timeout_s, s.admission.high_water, s.admission.low_water
    )
    return agent_app.build(parts.pipeline, bounds, parts.registry, parts.claims, {"policy": PolicyClient(endpoint)}, Clients())


def tool_worker(parts: Parts) -> Worker:
    """The tool worker."""
    s = parts.settings
    bounds = tool_app.ToolSettings(s.tool.in_flight, s.deadlines.tool_timeout_s)
    return tool_app.build(parts.pipeline, bounds, parts.registry, parts.claims, clients_of(s))


def verifier_worker(parts: Parts) -> Worker:
    """The verifier worker."""
    s = parts.settings
    bounds = verifier_app.VerifierSettings(s.verifier.in_flight, s.deadlines.verify_timeout_s, s.scored_format)
    return verifier_app.build(parts.pipeline, bounds, parts.registry, parts.claims, clients_of(s))


def sink_worker(parts: Parts, target: sink_app.MakeTarget, observe: sink_app.Observe | None = None) -> Worker:
    """The sink."""
    return sink_app.build(parts.pipeline, target, parts.claims, observe)
