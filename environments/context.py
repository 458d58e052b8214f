"""What an environment may use besides the task: clients by interface, time and randomness.

Invariant: an environment reaches the world only through its context, so a test with scripted clients covers all of it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

from environments.response import Response
from schemas.errors import InfrastructureError

T = TypeVar("T")


class ModelClient(Protocol):
    """A named model (policy, judge, any other): a Responses "create" object in, a Responses object out.

    Raises `ModelError` (a judge client `JudgeError`) when the call failed; an answer that cannot be read is not a failure.
    """

    async def create(self, params: Mapping[str, Any]) -> Response: ...


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """What a sandboxed program left: exit status, output (cut to the limit), and whether a limit ended it."""

    returncode: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    limit: str = ""


class Sandbox(Protocol):
    """Runs model-written code under limits. Raises `InfrastructureError` when the sandbox itself failed."""

    async def run(
        self, argv: Sequence[str], *, files: Mapping[str, bytes], stdin: bytes = b"", timeout_s: float
    ) -> SandboxResult: ...


class Session(Protocol):
    """A live session of one rollout on a tool worker; `journal` rebuilds it on another worker."""

    async def execute(self, command: str, *, timeout_s: float) -> SandboxResult: ...


class Sessions(Protocol):
    """Live sessions by rollout: found again while this worker lives, rebuilt from the journal when it does not."""

    async def get(self, rollout: str, kind: str, journal: Sequence[str]) -> Session: ...


class Search(Protocol):
    """A search back end: query in, documents out."""

    async def search(self, query: str, *, limit: int) -> Sequence[Mapping[str, Any]]: ...


@dataclass(frozen=True)
class Context:
    """Everything one call of an environment may use.

    `rollout_id` identifies the rollout across all of its calls; `rng` (made by `make_rng` when it is first asked for, since
    most verifiers never do) is seeded from it, so a repeat decides alike.
    """

    rollout_id: str = ""
    make_rng: Callable[[], random.Random] = random.Random
    now: Callable[[], float] = time.time
    models: Mapping[str, ModelClient] = field(default_factory=dict)
    data_dir: Path | None = None
    sandbox_client: Sandbox | None = None
    session_pool: Sessions | None = None
    search_client: Search | None = None

    @cached_property
    def rng(self) -> random.Random:
        """Random numbers of this call."""
        return self.make_rng()

    def model(self, name: str) -> ModelClient:
        """The model client called `name`; raises `InfrastructureError` when this worker has none."""
        client = self.models.get(name)
        if client is None:
            raise InfrastructureError(f"no model named {name!r} is configured (there are: {', '.join(self.models) or 'none'})")
        return client

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox; raises `InfrastructureError` when this worker has none."""
        return _present(self.sandbox_client, "sandbox")

    @property
    def sessions(self) -> Sessions:
        """The live sessions; raises `InfrastructureError` when this worker has none."""
        return _present(self.session_pool, "session pool")

    @property
    def search(self) -> Search:
        """The search client; raises `InfrastructureError` when this worker has none."""
        return _present(self.search_client, "search client")


def _present(value: T | None, what: str) -> T:
    if value is None:
        raise InfrastructureError(f"this worker has no {what}")
    return value
