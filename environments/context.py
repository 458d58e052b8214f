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
class Limits:
    """What a sandboxed program may use; sizes in bytes, times in seconds.

    `memory` counts the whole process tree where the machine can count it, each process elsewhere. `output` is what is kept of
    stdout and stderr each: the head and the tail.
    """

    wall_s: float = 10.0
    cpu_s: float | None = None
    memory: int = 1 << 30
    processes: int = 64
    open_files: int = 256
    file_size: int = 64 << 20
    scratch: int = 256 << 20
    output: int = 1 << 20
    network: bool = False


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """What a sandboxed program left: exit status (negative: the signal that ended it), output, files that were asked for.

    `limit` names the limit that ended it (`wall`, `cpu`, `memory`, `output`, …), empty when none did. `unsafe`: it ran
    without isolation, because somebody asked for that.
    """

    returncode: int
    stdout: bytes
    stderr: bytes
    limit: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)
    wall_s: float = 0.0
    unsafe: bool = False

    @property
    def timed_out(self) -> bool:
        """Whether time ended it, on the wall or on the processor."""
        return self.limit in {"wall", "cpu"}


class Sandbox(Protocol):
    """Runs model-written code under limits. Raises `InfrastructureError` when the sandbox itself failed."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        files: Mapping[str, bytes] | None = None,
        stdin: bytes = b"",
        limits: Limits = Limits(),
        collect: Sequence[str] = (),
    ) -> SandboxResult:
        """Run `argv` in a scratch directory that holds `files` (relative path to content) and nothing of the host's.

        `PYTHON` as the first word stands for a Python interpreter with the packages of this installation. `collect` names
        files (relative) to read back afterwards; those missing are left out.
        """
        ...


PYTHON = "python"
"""First word of a sandboxed command: the interpreter that has numpy and the like, wherever the sandbox keeps it."""


class Session(Protocol):
    """A live session of one rollout on a tool worker: an interpreter that keeps its variables between calls."""

    async def execute(self, code: str, *, timeout_s: float) -> Mapping[str, Any]:
        """Run `code`; the reply is the JSON object that the session's driver program answers.

        Raises `RolloutTimeout` when it was killed for its time, `SessionEnded` when the code ended it, `InfrastructureError`
        when the sandbox broke. The next call, after any of these, begins from what went before.
        """
        ...


class Sessions(Protocol):
    """Live sessions by rollout: found again while this worker lives, rebuilt from the journal when it does not."""

    async def get(
        self,
        rollout: str,
        driver: str,
        *,
        journal: Sequence[str] = (),
        limits: Limits = Limits(),
    ) -> Session:
        """The rollout's session. `driver` is Python source that runs in the sandbox and defines `execute(code) -> dict`.

        The driver finds `rollout` in its global `ROLLOUT`. When this worker has none, or one that has executed something else
        than `journal`, a new one executes the journal first.
        """
        ...

    async def close(self, rollout: str) -> None:
        """End the rollout's session; nothing happens when there is none."""
        ...


class Pool(Protocol):
    """Runs plain functions in other processes, for code that computes for long."""

    async def run(self, function: Callable[..., T], *args: Any, timeout_s: float | None = None) -> T:
        """`function(*args)`; both must be picklable. Raises `RolloutTimeout`, and `VerifierError` when the process died."""
        ...


class CodeServer(Protocol):
    """A code-execution server (math_formal_lean.md, "The Lean sandbox protocol"): a request object in, a reply object out.

    Never raises for what the server or the connection did: that is in the reply (`process_status`).
    """

    async def execute(self, request: Mapping[str, Any], *, timeout_s: float) -> Mapping[str, Any]: ...


class Pages(Protocol):
    """Pages of the web. Raises `InfrastructureError` when one cannot be had within the time."""

    async def get(self, url: str, *, timeout_s: float) -> str:
        """The text at `url` (http or https), redirects followed. A page that was had before may come from a cache."""
        ...


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
    pool_client: Pool | None = None
    code_server_client: CodeServer | None = None
    pages_client: Pages | None = None

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
    def code_server(self) -> CodeServer:
        """The code-execution server; raises `InfrastructureError` when none is configured."""
        return _present(self.code_server_client, "code server (setting `code_server.url`)")

    @property
    def pages(self) -> Pages:
        """Pages of the web; raises `InfrastructureError` when this worker has no client for them."""
        return _present(self.pages_client, "client for web pages")

    async def compute(self, function: Callable[..., T], *args: Any, timeout_s: float | None = None) -> T:
        """`function(*args)` in another process, where the worker has a pool; in this one otherwise (tests)."""
        return await self.pool_client.run(function, *args, timeout_s=timeout_s) if self.pool_client else function(*args)

    @property
    def search(self) -> Search:
        """The search client; raises `InfrastructureError` when this worker has none."""
        return _present(self.search_client, "search client")


def _present(value: T | None, what: str) -> T:
    if value is None:
        raise InfrastructureError(f"this worker has no {what}")
    return value
