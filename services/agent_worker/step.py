"""One turn of a rollout: ask the agent, call the model, hand on what the agent wants next.

Owns the loop of agents.md for any agent. Invariant: a turn leaves as exactly one event: tool calls, the next turn, a
trajectory, or a failure. Each model call is identified by (rollout, attempt, turn), so a repeat after a kill carries the
same idempotency key.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from environments.agents.agent import (
    Action,
    Agent,
    AskEnvironment,
    CallModel,
    CallTools,
    CloseEnvironment,
    Finish,
    ModelRequest,
    Step,
    View,
)
from environments.dispatch import closable
from environments.environment import Environment
from environments.registry import Registry
from environments.response import Response
from environments.tools import with_tools
from environments.usage import add_usage
from schemas import codec, headers, jsontext
from schemas.errors import CapacityError, DataError, ModelError, RolloutError, RolloutTimeout
from schemas.events import Payload, Rollout, ToolCalls, Trajectory, Turn
from schemas.quick import evolve, quick
from schemas.rows import PARAMS
from services.agent_worker.conversation import (
    frame_of,
    input_items,
    items_json,
    joined,
    reply_for_move,
    request_body,
    settle,
    settled_items,
    within_record,
)
from services.models.client import PolicyClient
from services.models.together import together
from services.runtime.claims import ClaimStore
from services.runtime.control import Control
from services.runtime.event_record import event_record
from services.runtime.failures import Failures, trace_of
from services.runtime.pace import Pace
from services.runtime.record import ConsumerRecord, Outgoing, Outputs
from services.runtime.scope import Scope
from services.runtime.standing import check_standing
from services.tracing.calls import traced_call
from services.tracing.tracer import CURRENT

MAX_TURNS = 1_000
"""Turns of one rollout, whatever its agent: an agent that never ends is a defect, not a long task."""


@dataclass(frozen=True, slots=True)
class TurnTools:
    """What a turn needs. `models` are clients by name; every agent has `policy`."""

    turns_topic: str
    tool_calls_topic: str
    trajectories_topic: str
    registry: Registry
    models: Mapping[str, PolicyClient]
    failures: Failures
    claims: ClaimStore
    control: Control
    scope: Scope
    now: Callable[[], float] = time.time


@quick
@dataclass(frozen=True, slots=True)
class _Open:
    """A rollout opened for its turn: its row and conversation are here. `closable` as in the agent's view."""

    rollout: Rollout
    row: bytes
    params: Mapping[str, Any]
    conversation: bytes
    usage: Mapping[str, Any] | None
    reply: Response | None = None
    closable: bool = False


class TurnStep:
    """The step of the `turns` stage."""

    def __init__(self, tools: TurnTools) -> None:
        self._tools = tools
        self._pace = Pace()

    async def __call__(self, record: ConsumerRecord) -> Outputs:
        if self._tools.scope.excludes(record):
            return ()
        try:
            rollout = codec.decode(record.value or b"", Turn).rollout
        except RolloutError as e:
            return [self._tools.failures.of_record(e, record)]
        try:
            return [await self._take(rollout, record)]
        except RolloutError as e:
            return [self._tools.failures.of_rollout(e, rollout, record)]

    async def _take(self, rollout: Rollout, record: ConsumerRecord) -> Outgoing:
        self._check(rollout)
        binding = self._tools.registry.binding(rollout.environment, None)
        agent = binding.agent
        opened = await self._open(rollout, binding.environment)
        step = agent.next(self._view(opened), ())
        if isinstance(step.action, CallModel):
            opened, step = await self._ask(agent, opened, step.action)
        return await self._hand_on(opened, step, record)

    def _check(self, rollout: Rollout) -> None:
        check_standing(self._tools.control, rollout, self._tools.now(), f"turn {rollout.turn + 1} could begin")
        if rollout.turn >= MAX_TURNS:
            raise CapacityError(f"the rollout has made {MAX_TURNS:,} model calls", retryable=False)

    async def _open(self, rollout: Rollout, environment: Environment) -> _Open:
        row = rollout.row.data or await self._tools.claims.unpack(rollout.ref, "row", rollout.row)
        params = jsontext.loads(row)[PARAMS]
        if rollout.tools:
            params = with_tools(params, jsontext.loads(rollout.tools))
        settled = await settled_items(self._tools.claims, rollout) if rollout.settled else b""
        conversation = joined(input_items(params), settled, rollout.items)
        summed = jsontext.loads(rollout.usage) if rollout.usage else None
        return _Open(rollout, row, params, conversation, summed, closable=closable(environment))

    async def _ask(self, agent: Agent, opened: _Open, action: CallModel) -> tuple[_Open, Step]:
        """Make the model calls and ask the agent what follows."""
        if not action.requests:
            raise DataError(f"agent {opened.rollout.agent} asked for a model call without naming one")
        calls = [self._call(opened, request, i) for i, request in enumerate(action.requests)]
        try:
            replies = [await calls[0]] if len(calls) == 1 else await together(calls)
        except (ModelError, RolloutTimeout) as e:
            if action.on_failure == "end" or self._is_late(opened.rollout):
                raise
            opened = evolve(opened, rollout=evolve(opened.rollout, turn=opened.rollout.turn + len(calls)))
            return opened, agent.next(evolve(self._view(opened), failure=e), ())
        await self._pace.enter()
        summed = opened.usage
        for reply in replies:
            summed = add_usage(summed, reply.usage)
        rollout = evolve(opened.rollout, turn=opened.rollout.turn + len(replies))
        opened = evolve(opened, rollout=rollout, usage=summed, reply=replies[-1])
        return opened, agent.next(self._view(opened), replies)

    async def _call(self, opened: _Open, request: ModelRequest, index: int) -> Response:
        client = self._tools.models.get(request.model)
        if client is None:
            raise DataError(f"the agent asks for a model named {request.model!r}, which this worker does not have")
        rollout = opened.rollout
        body = request_body(request, opened.params, opened.conversation, client.endpoint.name)
        session = f"{rollout.ref.run_id}/{rollout.ref.rollout_id}"
        key, deadline = f"{session}/{rollout.turn}.{index}", self._deadline(rollout, request.timeout_s)
        call = client.create(body, idempotency_key=key, deadline=deadline, session=session)
        if (trail := CURRENT.get()) is not None:
            call = traced_call(trail, request.model, client.endpoint.name, call, lambda reply: reply.body)
        return Response((await call).body)

    def _deadline(self, rollout: Rollout, timeout_s: float | None) -> float | None:
        """When a call must end, as loop time: its own bound or the rollout's, whichever is earlier."""
        bounds = [] if timeout_s is None else [timeout_s]
        if rollout.deadline_ms:
            bounds.append(rollout.deadline_ms / 1000 - self._tools.now())
        return asyncio.get_running_loop().time() + min(bounds) if bounds else None

    def _is_late(self, rollout: Rollout) -> bool:
        return bool(rollout.deadline_ms) and self._tools.now() * 1000 >= rollout.deadline_ms

    def _view(self, opened: _Open) -> View:
        rollout = opened.rollout
        return View(
            params=opened.params,
            turn=rollout.turn,
            memory=jsontext.loads(rollout.memory) if rollout.memory else {},
            items=lambda: _items(opened),
            done=rollout.done,
            state=lambda: jsontext.loads_lenient(rollout.env_state) if rollout.env_state else {},
            closable=opened.closable,
            now=self._tools.now(),
        )

    async def _hand_on(self, opened: _Open, step: Step, record: ConsumerRecord) -> Outgoing:
        action = step.action
        if isinstance(action, Finish):
            return await self._trajectory(opened, step, action, record)
        if isinstance(action, CallTools) and not action.calls:
            raise DataError(f"agent {opened.rollout.agent} asked for tools without naming one")
        rollout = await settle(self._tools.claims, opened.rollout)
        rollout = evolve(
            rollout,
            items=joined(rollout.items, items_json(step.append)),
            memory=jsontext.dumps(step.memory) if step.memory else b"",
            usage=jsontext.dumps(opened.usage) if opened.usage else b"",
        )
        rollout = await within_record(self._tools.claims, rollout)
        topic, event = self._event(evolve(rollout, reply=_kept_reply(opened, step, rollout)), action)
        return event_record(topic, rollout.ref.key, event, headers.of(rollout.ref, *trace_of(record)))

    def _event(self, rollout: Rollout, action: Action) -> tuple[str, Turn | ToolCalls]:
        if isinstance(action, CallTools):
            return self._tools.tool_calls_topic, ToolCalls(rollout, "call", action.calls)
        if isinstance(action, AskEnvironment):
            return self._tools.tool_calls_topic, ToolCalls(rollout, "respond")
        if isinstance(action, CloseEnvironment):
            return self._tools.tool_calls_topic, ToolCalls(rollout, "close")
        return self._tools.turns_topic, Turn(rollout)

    async def _trajectory(self, opened: _Open, step: Step, action: Finish, record: ConsumerRecord) -> Outgoing:
        rollout = opened.rollout
        response = await self._response(opened, step, action)
        claims = self._tools.claims
        event = Trajectory(
            ref=rollout.ref,
            environment=rollout.environment,
            agent=rollout.agent,
            source=rollout.source,
            admitted_ms=rollout.admitted_ms,
            finished_ms=int(self._tools.now() * 1000),
            row=await claims.pack(rollout.ref, "row", opened.row),
            response=await claims.pack(rollout.ref, "response", response),
            turns=rollout.turn,
            deadline_ms=rollout.deadline_ms,
            env_state=rollout.env_state,
            result=await claims.pack(rollout.ref, "result", jsontext.dumps(action.result)) if action.result else Payload(),
        )
        found = headers.of(rollout.ref, *trace_of(record))
        return event_record(self._tools.trajectories_topic, rollout.ref.task_key, event, found)

    async def _response(self, opened: _Open, step: Step, action: Finish) -> bytes:
        """The final Responses object (platform.md A5): the last reply, with all items and the summed usage."""
        rollout = opened.rollout
        body = dict(opened.reply.body) if opened.reply is not None else _stored_reply(rollout)
        before = joined(await settled_items(self._tools.claims, rollout), rollout.items)
        body["output"] = jsontext.Fragment(b"[" + joined(before, items_json(step.append)) + b"]")
        body["usage"] = opened.usage
        body.update(action.fields)
        return jsontext.dumps(body)


def _items(opened: _Open) -> Sequence[Mapping[str, Any]]:
    """The conversation after the row's own input."""
    items: list[Mapping[str, Any]] = jsontext.loads_lenient(b"[" + opened.conversation + b"]")
    given = opened.params.get("input")
    return items[1 if isinstance(given, str) else len(given or ()) :]


def _kept_reply(opened: _Open, step: Step, rollout: Rollout) -> bytes:
    """What of the last reply later steps need: all of it for the environment's move, its frame when the next may be the end."""
    reply, action = opened.reply, step.action
    if reply is None:
        return opened.rollout.reply
    if isinstance(action, AskEnvironment):
        return reply_for_move(reply, step.append, rollout)
    return b"" if isinstance(action, CallTools) and not action.may_end else frame_of(reply)


def _stored_reply(rollout: Rollout) -> dict[str, Any]:
    """The last reply as an earlier turn left it; an empty object when the rollout ends without a model call."""
    if rollout.reply:
        found: dict[str, Any] = jsontext.loads_lenient(rollout.reply)
        return found
    return {"id": f"resp_{rollout.ref.rollout_id}", "object": "response", "status": "completed", "error": None}
