"""Running an environment with plain calls: what the workers do, without Kafka.

Owns the harness that tests of environments and the conformance suite use. Invariant: every call goes through
`environments.dispatch`, and the state is carried as the events carry it (JSON text between calls), so what passes here
does the same on a worker.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import random
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel

from environments import dispatch
from environments.context import Context
from environments.environment import Environment, Member, Move, Seed
from environments.response import Item, Response
from environments.tools import ToolReply
from environments.verdict import Verdict
from schemas.errors import RolloutError
from schemas.events import ToolCall
from schemas.rows import check_row

T = TypeVar("T")


class HasEnvironment(Protocol):
    """What the harness needs of a `Binding`."""

    @property
    def environment(self) -> Environment: ...


class EnvironmentHarness:
    """One rollout of an environment, step by step: `seed`, then `call` and `respond`, then `verify`.

    Takes a `Binding` or an environment. `context` is for scripted clients; the default has the random numbers of
    `rollout_id` "0-0" and no clients. Methods of the environment may be `def` or `async def`; the harness's own are plain
    and must not be called from inside a running event loop.
    """

    def __init__(self, binding: HasEnvironment | Environment, *, context: Context | None = None) -> None:
        self.environment = binding if isinstance(binding, Environment) else binding.environment
        self.context = context or Context(rollout_id="0-0", make_rng=lambda: random.Random("0-0"))  # noqa: S311 - not for secrets
        self.row: Mapping[str, Any] = {}
        self.task: BaseModel | None = None
        self.seeded = Seed()
        self.state_json: str | None = None

    def seed(self, row: Mapping[str, Any]) -> Seed:
        """Begin a rollout of `row`; raises `DataError` for a row that the platform or the environment refuses."""
        self.take(row)
        self.seeded = self._wait(dispatch.run_seed(self.environment, self.task, self.context))
        self._keep(dispatch.first_state(self.environment, self.seeded))
        return self.seeded

    def take(self, row: Mapping[str, Any]) -> None:
        """Check `row` and make it the current task without seeding; raises `DataError`."""
        self.row = check_row(dict(row))
        self.task = dispatch.read_task(self.environment, self.row)
        self.seeded, self.state_json = Seed(), None

    def call(self, name: str, arguments: str = "{}", *, call_id: str = "call_1") -> ToolReply:
        """The reply to one call; `arguments` is the JSON text that a model would write. Raises as `run_tool`."""
        state = self.state
        work = dispatch.run_tool(self.environment, ToolCall(call_id, name, arguments), self.task, state, self.context)
        reply = self._wait(work)
        self._keep(state)
        return reply

    def respond(self, response: Mapping[str, Any]) -> Move:
        """The environment's move after a turn of the policy."""
        state = self.state
        move = self._wait(dispatch.run_respond(self.environment, self.task, Response(response), state, self.context))
        self._keep(state)
        return move

    def close(self) -> None:
        """Let the environment free what it holds, as the tool worker does: errors are dropped."""
        state = self.state
        with contextlib.suppress(RolloutError):
            self._wait(dispatch.run_close(self.environment, self.task, state, self.context))
        self._keep(state)

    def verify(self, response: Mapping[str, Any]) -> Verdict:
        """The verdict on the finished rollout; raises `VerifierError`, `JudgeError` or another `RolloutError`."""
        work = dispatch.run_verify(self.environment, self.task, Response(response), self.state, self.context)
        return self._wait(work)

    def verify_group(self, responses: Sequence[Mapping[str, Any]]) -> list[Verdict]:
        """The verdicts on rollouts of the current task that are scored together."""
        members = [Member(self.task, Response(r), self.state, i) for i, r in enumerate(responses)]
        return self._wait(dispatch.run_verify_group(self.environment, members, self.context))

    @property
    def state(self) -> Any:
        """A fresh copy of the rollout's state, read from its JSON; None when there is none."""
        if self.state_json is None or self.environment.State is None:
            return None
        return self.environment.State.model_validate_json(self.state_json)

    def _keep(self, state: Any) -> None:
        self.state_json = None if state is None else state.model_dump_json()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return _loop().run_until_complete(work)


_LOOPS = threading.local()


def _loop() -> asyncio.AbstractEventLoop:
    """The event loop of all harnesses of this thread: what an environment opens in one call is usable in the next."""
    found: asyncio.AbstractEventLoop | None = getattr(_LOOPS, "loop", None)
    if found is None:
        found = _LOOPS.loop = asyncio.new_event_loop()
        atexit.register(found.close)
    return found


class ScriptedModel:
    """A model that gives these replies in order: texts, Responses objects, or exceptions to raise.

    It serves as a `ModelClient` in a context and as a model of `environments.agents.playing`; `requests` are the
    parameters it was called with.
    """

    def __init__(self, *replies: str | Mapping[str, Any] | Exception) -> None:
        self._replies = iter(replies)
        self.requests: list[Mapping[str, Any]] = []

    def answer(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """The next reply; raises it when it is an exception, and `AssertionError` when the script is over."""
        self.requests.append(params)
        reply = next(self._replies, None)
        if reply is None:
            raise AssertionError(f"the script has no reply number {len(self.requests)}")
        if isinstance(reply, Exception):
            raise reply
        return response(reply) if isinstance(reply, str) else reply

    async def create(self, params: Mapping[str, Any]) -> Response:
        """`answer`, as a model client gives it."""
        return Response(self.answer(params))


def message(text: str, *, role: str = "assistant") -> Item:
    """A message item with one text part."""
    kind = "output_text" if role == "assistant" else "input_text"
    part = {"type": kind, "text": text, **({"annotations": []} if role == "assistant" else {})}
    return {"type": "message", "role": role, "content": [part]}


def function_call(name: str, arguments: str = "{}", *, call_id: str = "call_1") -> Item:
    """A function call item."""
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def response(*output: Item | str, **fields: Any) -> dict[str, Any]:
    """A Responses object with these output items; a text stands for an assistant message."""
    items = [message(o) if isinstance(o, str) else o for o in output]
    return {"id": "resp_test", "object": "response", "created_at": 0, "model": "scripted", "output": items, **fields}
