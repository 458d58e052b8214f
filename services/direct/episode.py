"""One rollout's environment: seed, tool calls, moves, closing, verification.

Owns the state of the rollout between calls. Invariant: the state is kept as an event carries it (bytes), and only a call that
answered changes it, so a call that failed leaves the episode as it was. Calls of one episode must not overlap.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import iscoroutinefunction
from typing import Any, TypeVar

import structlog
from pydantic import BaseModel

from environments.context import Context
from environments.dispatch import closable, first_state, read_task, run_close, start_respond, start_seed, start_tool, then
from environments.environment import Environment, Move, Seed
from environments.registry import Binding
from environments.response import Response
from environments.tools import ToolReply
from environments.verdict import Verdict
from schemas import jsontext
from schemas.errors import DataError, RolloutError, ToolError
from schemas.events import ToolCall
from schemas.identity import RolloutRef
from services.direct.services import Services
from services.runtime.offload import told
from services.runtime.state import read_state, write_state
from services.verifier_worker.verifying import Subject

log = structlog.get_logger()

T = TypeVar("T")


class Episode:
    """The environment's side of the rollout `ref` of `row`; without a row, of nothing but calls to tools that need no task."""

    def __init__(self, services: Services, binding: Binding, ref: RolloutRef, row: Mapping[str, Any] | None) -> None:
        self.binding = binding
        self.ref = ref
        self.row = row
        self.state = b""
        self._services = services
        self._turn = 0

    @property
    def environment(self) -> Environment:
        return self.binding.environment

    async def seed(self) -> Seed:
        """Begin; raises `DataError` for a row that does not fit, or whatever kept the environment from a seed."""
        environment, row, context = self.environment, self._row(), self._context()

        def work() -> Any:
            begun = start_seed(environment, read_task(environment, row), context)
            return then(begun, lambda seed: (seed, write_state(first_state(environment, seed))))

        seed: Seed = await self._changing(work, iscoroutinefunction(environment.seed), "the seed")
        return seed

    async def call(self, call: ToolCall) -> ToolReply:
        """Answer one call (`dispatch.run_tool`); when the environment fails, it is closed and the error raised."""
        environment, context, state = self.environment, self._context(), self.state
        tool = environment.tools.get(call.name)

        def work() -> Any:
            live = _state(environment, state)
            task = self._task(needed=tool is None or "task" in tool.injected)
            return then(start_tool(environment, call, task, live, context), lambda reply: (reply, write_state(live)))

        function = tool.function if tool else environment.call_unknown_tool
        return await self._or_close(self._changing(work, iscoroutinefunction(function), f"tool {call.name!r}"))

    async def respond(self, turn: Response) -> Move:
        """The environment's move after a turn of the policy; closes as `call` does."""
        environment, context, state = self.environment, self._context(), self.state

        def work() -> Any:
            live = _state(environment, state)
            move = start_respond(environment, self._task(), turn, live, context)
            return then(move, lambda made: (made, write_state(live)))

        return await self._or_close(self._changing(work, iscoroutinefunction(environment.respond), "the environment's move"))

    async def close(self) -> None:
        """Let the environment free what it holds. Nothing of a rollout depends on whether that worked."""
        environment, context, state = self.environment, self._context(), self.state

        async def work() -> bytes:
            live = _state(environment, state)
            await run_close(environment, self._task(needed=False), live, context)
            return write_state(live)

        try:
            self.state = await self._services.offload.submit(work, self._services.deadlines.tool_s, waits=True)
        except RolloutError as e:
            log.warning("not closed", rollout=self.ref.rollout_id, error=str(e))

    async def forget(self) -> None:
        """End the rollout here: close the environment, and end a live session of its own."""
        if closable(self.environment):
            await self.close()
        sessions = self._services.clients.sessions
        if sessions is not None:
            await sessions.close(self.ref.rollout_id)

    async def verify(self, row: Mapping[str, Any], response: bytes) -> Verdict:
        """The verdict on `response`; raises the `RolloutError` that kept it from one.

        Where an environment scores the rollouts of a task together, this waits for the others (`Services.gathering`).
        """
        subject = Subject(self.ref, self.binding.name, jsontext.dumps(row), response, self.state)
        if self.environment.scoring == "group":
            return await self._services.gathering.verdict(self.environment, subject, row)
        return await self._services.verifying.verdict(self.environment, subject, row)

    def _row(self) -> Mapping[str, Any]:
        if self.row is None:
            raise DataError("this rollout has no row: seed it first")
        return self.row

    def _task(self, *, needed: bool = True) -> BaseModel | None:
        return read_task(self.environment, self._row()) if needed or self.row is not None else None

    def _context(self) -> Context:
        context = self._services.clients.context(self.ref, self._turn)
        self._turn += 1
        return context

    async def _changing(self, work: Callable[[], Any], waits: bool, what: str) -> Any:
        """The first of what `work` answers with; the second is the new state."""
        timeout_s = self._services.deadlines.tool_s
        running = self._services.offload.submit(work, timeout_s, waits=waits)
        late = f"{what} did not return within {timeout_s:g} s"
        answer, self.state = await told(running, late, ToolError, self.binding.name)
        return answer

    async def _or_close(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except Exception:
            if closable(self.environment):
                await self.close()
            raise


def _state(environment: Environment, data: bytes) -> BaseModel | None:
    """The state; raises `DataError` when it needs a seed and had none."""
    try:
        return read_state(environment, data)
    except DataError as e:
        raise e if data else DataError(f"this rollout has no state: seed it first ({e})") from e
