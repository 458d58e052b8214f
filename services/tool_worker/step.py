"""One turn's tool calls, or the environment's move.

Owns the way from a `tool-calls` event back to `turns`. Invariant: every call of a turn gets exactly one output item, in
the order of the calls; wrong names and wrong arguments become text that the model reads; a tool that raises or does not
return ends the rollout with its class.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

import structlog
from pydantic import BaseModel

from environments.context import Context
from environments.dispatch import (
    closable,
    first_state,
    read_task,
    run_close,
    settled,
    start_respond,
    start_seed,
    start_tool,
    then,
)
from environments.environment import Environment, Move, Seed
from environments.registry import Registry
from environments.response import Item, Response
from environments.tools import ToolReply
from schemas import codec, headers, jsontext
from schemas.errors import RolloutError, ToolError
from schemas.events import Rollout, ToolCall, ToolCalls, Turn
from schemas.quick import evolve, quick
from schemas.topics import INLINE_LIMIT
from services.runtime.claims import ClaimStore
from services.runtime.clients import Clients
from services.runtime.control import Control
from services.runtime.event_record import event_record
from services.runtime.failures import Failures, trace_of
from services.runtime.offload import Offload, told
from services.runtime.record import ConsumerRecord, Outgoing, Outputs
from services.runtime.scope import Scope
from services.runtime.standing import check_standing
from services.runtime.state import read_state, write_state
from services.tracing.calls import traced_tool
from services.tracing.tracer import CURRENT, Trail

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ToolTools:
    """What the tool step needs. `timeout_s` bounds all the calls of one turn."""

    turns_topic: str
    registry: Registry
    failures: Failures
    claims: ClaimStore
    control: Control
    offload: Offload
    clients: Clients
    scope: Scope
    timeout_s: float
    now: Callable[[], float] = time.time


@quick
@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a turn's calls led to: items for the conversation, the new state, the end of the rollout, tools of a seed.

    `reply` is what later steps may need of the policy's last reply, None to leave it as it is.
    """

    items: Sequence[Item]
    state: BaseModel | None
    done: bool = False
    tools: Sequence[Mapping[str, Any]] = ()
    reply: bytes | None = None


class ToolStep:
    """The step of the `tool-calls` stage."""

    def __init__(self, tools: ToolTools) -> None:
        self._tools = tools

    async def __call__(self, record: ConsumerRecord) -> Outputs:
        if self._tools.scope.excludes(record):
            return ()
        try:
            event = codec.decode(record.value or b"", ToolCalls)
        except RolloutError as e:
            return [self._tools.failures.of_record(e, record)]
        try:
            return [await self._run(event, record)]
        except RolloutError as e:
            return [self._tools.failures.of_rollout(e, event.rollout, record)]

    async def _run(self, event: ToolCalls, record: ConsumerRecord) -> Outgoing:
        rollout = event.rollout
        before = f"the tool calls of turn {rollout.turn} could run"
        check_standing(self._tools.control, rollout, self._tools.now(), before)
        environment = self._tools.registry.binding(rollout.environment, None).environment
        row = jsontext.loads(rollout.row.data or await self._tools.claims.unpack(rollout.ref, "row", rollout.row))
        work = _Work(environment, event, row, self._tools.clients.context(rollout.ref, rollout.turn), CURRENT.get())
        running = self._tools.offload.submit(work.run, self._timeout_s(rollout), waits=work.waits)
        late = f"the tool calls of turn {rollout.turn} did not return in time"
        outcome = await told(running, late, ToolError, rollout.environment)
        return await self._turn(rollout, outcome, record)

    def _timeout_s(self, rollout: Rollout) -> float:
        if not rollout.deadline_ms:
            return self._tools.timeout_s
        return min(self._tools.timeout_s, rollout.deadline_ms / 1000 - self._tools.now())

    async def _turn(self, rollout: Rollout, outcome: _Outcome, record: ConsumerRecord) -> Outgoing:
        added = b",".join(jsontext.dumps(i) for i in outcome.items)
        rollout = evolve(
            rollout,
            items=b",".join(p for p in (rollout.items, added) if p),
            env_state=write_state(outcome.state),
            tools=jsontext.dumps(outcome.tools) if outcome.tools else rollout.tools,
            reply=rollout.reply if outcome.reply is None else outcome.reply,
            done=outcome.done,
        )
        if len(rollout.items) > INLINE_LIMIT:
            claim = await self._tools.claims.keep(rollout.ref, len(rollout.settled), rollout.items)
            rollout = evolve(rollout, settled=(*rollout.settled, claim), items=b"")
        found = headers.of(rollout.ref, *trace_of(record))
        return event_record(self._tools.turns_topic, rollout.ref.key, Turn(rollout), found)


@quick
@dataclass(frozen=True, slots=True)
class _Work:
    """What runs in the side thread: everything of one event that is environment code."""

    environment: Environment
    event: ToolCalls
    row: dict[str, Any]
    context: Context
    trail: Trail | None = None

    @property
    def waits(self) -> bool:
        """Whether any of it is `async def`."""
        environment = self.environment
        if iscoroutinefunction(environment.close):
            return True
        if self.event.kind != "call":
            return iscoroutinefunction(environment.seed if self.event.kind == "seed" else environment.respond)
        tools = [environment.tools.get(call.name) for call in self.event.calls]
        return any(iscoroutinefunction(t.function if t else environment.call_unknown_tool) for t in tools)

    def run(self) -> _Outcome | Awaitable[_Outcome]:
        """The outcome, at once when no part of it waits."""
        task = read_task(self.environment, self.row)
        if self.event.kind == "seed":
            return then(start_seed(self.environment, task, self.context), self._seeded)
        state = read_state(self.environment, self.event.rollout.env_state)
        if self.event.kind == "close":
            return self._closed(task, state)
        return self._or_close(task, state) if closable(self.environment) else self._answered(task, state)

    async def _or_close(self, task: Any, state: BaseModel | None) -> _Outcome:
        """The outcome; the end of the rollout when there is none."""
        try:
            return await settled(self._answered(task, state))
        except Exception:
            await self._closed(task, state)
            raise

    def _answered(self, task: Any, state: BaseModel | None) -> _Outcome | Awaitable[_Outcome]:
        if self.event.kind == "respond":
            turn = self._last_turn()
            move = start_respond(self.environment, task, turn, state, self.context)
            return then(move, lambda made: _moved(made, turn, state))
        return self._call(task, state, ())

    def _call(self, task: Any, state: Any, before: tuple[ToolReply, ...]) -> _Outcome | Awaitable[_Outcome]:
        """Make the calls that have no reply yet."""
        replies = list(before)
        for call in self.event.calls[len(before) :]:
            reply = self._start(call, task, state)
            if not isinstance(reply, ToolReply):
                return self._await_call(task, state, tuple(replies), reply)
            replies.append(reply)
        items = [_output(call.call_id, reply.output) for call, reply in zip(self.event.calls, replies, strict=True)]
        return _Outcome(items, state)

    def _start(self, call: ToolCall, task: Any, state: Any) -> ToolReply | Awaitable[ToolReply]:
        if self.trail is None:
            return start_tool(self.environment, call, task, state, self.context)
        start = partial(start_tool, self.environment, call, task, state, self.context)
        return traced_tool(self.trail, call.name, call.call_id, start)

    async def _closed(self, task: Any, state: BaseModel | None) -> _Outcome:
        """Nothing of a rollout depends on whether closing worked."""
        try:
            await run_close(self.environment, task, state, self.context)
        except RolloutError as e:
            log.warning("not closed", rollout=self.context.rollout_id, error=str(e))
        return _Outcome((), state, done=self.event.rollout.done)

    async def _await_call(
        self, task: Any, state: Any, before: tuple[ToolReply, ...], pending: Awaitable[ToolReply]
    ) -> _Outcome:
        return await settled(self._call(task, state, (*before, await pending)))

    def _seeded(self, seed: Seed) -> _Outcome:
        return _Outcome(seed.items, first_state(self.environment, seed), tools=seed.tools)

    def _last_turn(self) -> Response:
        """The policy's last reply, which the agent worker put beside the conversation; empty before the first."""
        rollout = self.event.rollout
        body = jsontext.loads_lenient(rollout.reply) if rollout.reply else {}
        if isinstance(body.get("output"), int):  # so many of the last items (see `reply_for_move` of the agent worker)
            items = jsontext.loads_lenient(b"[" + rollout.items + b"]")
            body["output"] = items[len(items) - body["output"] :]
        return Response(body)


def _moved(move: Move, turn: Response, state: BaseModel | None) -> _Outcome:
    """The move; of the turn it answers only the frame goes on, the rest is in the conversation."""
    frame = {k: v for k, v in turn.body.items() if k != "output"}
    return _Outcome(move.items, state, move.done, reply=jsontext.dumps(frame) if frame else b"")


def _output(call_id: str, text: str) -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": text}
