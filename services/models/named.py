"""The models of one process by name: the policy, judges, whatever else an environment or an agent asks for.

Owns which endpoint a name means, and the clients of those endpoints: one for each endpoint and worker, so names that share
an endpoint share its limit of calls in flight. Invariant: a name without settings means the policy, and that is said once in
the log and kept for the run record, because a score then depends on the model under training.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import structlog

from environments.context import ModelClient
from environments.response import Response
from schemas import jsontext
from schemas.errors import JudgeError, ModelError, RolloutTimeout
from services.models.client import PolicyClient
from services.models.endpoint import ModelEndpoint
from services.models.replicas import client_of
from services.models.reply import overflowed

_log = structlog.get_logger(__name__)

POLICY = "policy"


@dataclass(frozen=True, slots=True)
class Answer(Response):
    """A response with what became of its call: where it was answered, after how many tries and how long."""

    endpoint: str
    model: str
    tries: int
    latency_s: float
    reused: bool = False


@dataclass(slots=True)
class Endpoints:
    """Endpoints by name, as one process has them. `policy` is None where a worker knows of none."""

    policy: ModelEndpoint | None = None
    named: Mapping[str, ModelEndpoint] = field(default_factory=dict)
    _shared: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for name, endpoint in self.named.items():
            if self.policy is not None and _same(endpoint, self.policy):
                self._note(name, "is the policy's own model")

    def find(self, name: str) -> ModelEndpoint | None:
        """The endpoint that `name` means; None when it has no settings and there is no policy to stand in for it."""
        found = self.named.get(name)
        if found is None and name != POLICY and self.policy is not None:
            self._note(name, f"has no settings (models.{name}); the policy answers in its place")
        return found or self.policy

    @property
    def warnings(self) -> list[str]:
        """What a reader of the scores should know, a sentence each: the models that were the policy."""
        return [
            f"model {name!r} and the policy are the same endpoint: scores that it gives depend on the model under training"
            for name in sorted(self._shared)
        ]

    def _note(self, name: str, why: str) -> None:
        if name not in self._shared and self.policy is not None:
            self._shared.add(name)
            _log.warning("model_is_policy", name=name, why=why, endpoint=self.policy.base_url, model=self.policy.name)


class NamedModels(Mapping[str, ModelClient]):
    """The models of one worker: for environments by name, and as `clients` for agents. `start` and `close` it.

    A call takes no longer than `budget_s`, tries and waiting included. A failed one is a `JudgeError` where `judges` is set
    (on the verifier, for every name but the policy's), else a `ModelError`. Reading a name may come from any thread, calls
    must come from the loop on which it was started.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        budget_s: float,
        judges: bool = False,
        new_key: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        self._endpoints = endpoints
        self._judges = judges
        self.budget_s = budget_s
        self.new_key = new_key
        found = [endpoints.policy] if endpoints.policy else []
        found += [e for e in endpoints.named.values() if e not in found]
        self._clients = [client_of(endpoint) for endpoint in found]
        self._found: dict[str, PolicyClient] = {}

    async def start(self) -> None:
        """Open the connection pools; connects to nothing yet."""
        for client in self._clients:
            await client.start()

    async def close(self) -> None:
        """Close them; calls under way fail."""
        for client in self._clients:
            await client.close()

    @property
    def clients(self) -> Mapping[str, PolicyClient]:
        """The clients themselves, by name, for who sends requests of its own."""
        return _Clients(self)

    def client(self, name: str) -> PolicyClient:
        """The client that answers for `name`; raises `KeyError` when none does."""
        found = self._found.get(name)
        if found is None:
            endpoint = self._endpoints.find(name)
            if endpoint is None:
                raise KeyError(name)
            found = self._found[name] = next(c for c in self._clients if c.endpoint == endpoint)
        return found

    def __getitem__(self, name: str) -> NamedModel:
        return NamedModel(name, self, self.client(name), judge=self._judges and name != POLICY)

    def __iter__(self) -> Iterator[str]:
        yield from ([POLICY] if self._endpoints.policy else [])
        yield from self._endpoints.named

    def __len__(self) -> int:
        return len(list(iter(self)))


@dataclass(frozen=True, slots=True)
class NamedModel:
    """One model, as environments call it."""

    name: str
    models: NamedModels
    client: PolicyClient
    judge: bool

    async def create(self, params: Mapping[str, object]) -> Answer:
        """The response to `params`, a Responses "create" object without `model`. Raises as `NamedModels` says."""
        endpoint = self.client.endpoint
        body = jsontext.dumps({**params, "model": endpoint.name})
        deadline = asyncio.get_running_loop().time() + self.models.budget_s
        try:
            reply = await self.client.create(body, idempotency_key=self.models.new_key(), deadline=deadline)
        except (ModelError, RolloutTimeout) as e:
            kind = JudgeError if self.judge else ModelError
            raise kind(f"{self.name}: {e}", detail=e.detail, retryable=e.retryable) from e
        if self.judge and overflowed(reply.body):  # for a policy the end of its answer, for a judge no answer at all
            raise JudgeError(f"{self.name}: the prompt is longer than the context of {endpoint.name}", retryable=False)
        return Answer(reply.body, endpoint.base_url, endpoint.name, reply.attempts, reply.latency_s)


class _Clients(Mapping[str, PolicyClient]):
    def __init__(self, models: NamedModels) -> None:
        self._models = models

    def __getitem__(self, name: str) -> PolicyClient:
        return self._models.client(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._models)

    def __len__(self) -> int:
        return len(self._models)


def _same(one: ModelEndpoint, other: ModelEndpoint) -> bool:
    return (one.base_url, one.name) == (other.base_url, other.name)
