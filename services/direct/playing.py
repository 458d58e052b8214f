"""Playing an agent over an episode: the loop of the agent worker, with calls instead of events.

Invariant: the agent's memory goes through JSON after every step, as it does in the events, and everything that happens is
told to the observer, in order, before the next thing begins.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from environments.agents.agent import (
    Action,
    AskEnvironment,
    CallModel,
    CallTools,
    CloseEnvironment,
    Finish,
    ModelRequest,
    View,
)
from environments.dispatch import closable
from environments.response import Item, Response
from environments.tools import ToolReply
from environments.usage import add_usage
from schemas import jsontext
from schemas.errors import CapacityError, DataError, ModelError, RolloutError, RolloutTimeout
from schemas.events import ToolCall
from services.agent_worker.conversation import input_items, items_json, joined, request_body
from services.agent_worker.step import MAX_TURNS
from services.direct.episode import Episode
from services.direct.services import Services
from services.models.together import together

MAX_STEPS = 4 * MAX_TURNS
"""An agent takes a few steps for each model call; beyond this it asks for nothing that ends."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The agent asks a model, for the rollout's model call number `turn` (from 1) and those after it."""

    turn: int
    requests: tuple[ModelRequest, ...]


@dataclass(frozen=True, slots=True)
class Replied:
    """The replies, in order."""

    responses: tuple[Response, ...]


@dataclass(frozen=True, slots=True)
class Called:
    """A tool call and its reply."""

    call: ToolCall
    reply: ToolReply


@dataclass(frozen=True, slots=True)
class Moved:
    """What the environment said, and whether it ended the rollout."""

    items: tuple[Item, ...]
    done: bool


Event = Asked | Replied | Called | Moved

Observe = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Played:
    """The final Responses object (platform.md A5) as JSON, and the fields that the agent adds to the result line."""

    response: bytes
    result: Mapping[str, Any] = field(default_factory=dict)


class Play:
    """One rollout as it is played over `params`. `items` are the environment's, before the first turn."""

    def __init__(
        self,
        services: Services,
        episode: Episode,
        params: Mapping[str, Any],
        items: Sequence[Item] = (),
        observe: Observe = lambda _: None,
    ) -> None:
        self._services, self._episode, self._params, self._observe = services, episode, params, observe
        self._items = list(items)
        self._turn = 0
        self._usage: dict[str, Any] | None = None
        self._last: Response | None = None
        self._done = False
        self._failure: RolloutError | None = None

    async def run(self) -> Played:
        """Play to the end; raises whatever `RolloutError` ends the rollout."""
        agent = self._episode.binding.agent
        memory: Mapping[str, Any] = {}
        replies: Sequence[Response] = ()
        for _ in range(MAX_STEPS):
            step = agent.next(self._view(memory), replies)
            self._failure = None
            self._items += step.append
            memory = jsontext.loads(jsontext.dumps(step.memory))
            if isinstance(step.action, Finish):
                return Played(self._response(step.action.fields), step.action.result)
            replies = await self._do(step.action)
        raise CapacityError(f"{type(agent).__name__} took {MAX_STEPS:,} steps without finishing", retryable=False)

    def _view(self, memory: Mapping[str, Any]) -> View:
        episode = self._episode
        return View(
            params=self._params,
            turn=self._turn,
            memory=memory,
            items=lambda: tuple(self._items),
            done=self._done,
            state=lambda: jsontext.loads_lenient(episode.state) if episode.state else {},
            closable=closable(episode.environment),
            failure=self._failure,
            now=time.time(),
        )

    async def _do(self, action: Action) -> Sequence[Response]:
        if isinstance(action, CallModel):
            return await self._ask(action)
        if isinstance(action, CloseEnvironment):
            await self._episode.close()
        elif isinstance(action, CallTools):
            await self._call(action.calls)
        elif isinstance(action, AskEnvironment):
            move = await self._episode.respond(self._last or Response({}))
            self._items += move.items
            self._done = move.done
            self._observe(Moved(move.items, move.done))
        return ()

    async def _call(self, calls: Sequence[ToolCall]) -> None:
        for call in calls:
            reply = await self._episode.call(call)
            self._items.append({"type": "function_call_output", "call_id": call.call_id, "output": reply.output})
            self._observe(Called(call, reply))

    async def _ask(self, action: CallModel) -> Sequence[Response]:
        if self._turn >= MAX_TURNS:
            raise CapacityError(f"the rollout has made {MAX_TURNS:,} model calls", retryable=False)
        self._observe(Asked(self._turn + 1, action.requests))
        first, self._turn = self._turn, self._turn + len(action.requests)
        try:
            replies = await together([self._reply(r, first, i) for i, r in enumerate(action.requests)])
        except (ModelError, RolloutTimeout) as e:
            if action.on_failure == "end":
                raise
            self._failure = e
            return ()
        for reply in replies:
            self._usage = add_usage(self._usage, reply.usage)
        self._last = replies[-1]
        self._observe(Replied(tuple(replies)))
        return replies

    async def _reply(self, request: ModelRequest, turn: int, index: int) -> Response:
        client = self._services.models.clients.get(request.model)
        if client is None:
            raise DataError(f"the agent asks for a model named {request.model!r}, which is not configured here")
        conversation = joined(input_items(self._params), items_json(self._items))
        body = request_body(request, self._params, conversation, client.endpoint.name)
        ref = self._episode.ref
        key = f"{ref.run_id}/{ref.rollout_id}/{turn}.{index}"
        now = asyncio.get_running_loop().time()
        deadline = now + min(self._services.deadlines.rollout_s, request.timeout_s or float("inf"))
        reply = await client.create(body, idempotency_key=key, deadline=deadline)
        return Response(reply.body)

    def _response(self, fields: Mapping[str, Any]) -> bytes:
        begun: Mapping[str, Any] = {"id": f"resp_{self._episode.ref.rollout_id}", "object": "response", "error": None}
        body = begun if self._last is None else self._last.body
        return jsontext.dumps({**body, "output": self._items, "usage": self._usage, **fields})
