"""Playing an agent with plain calls: what the agent worker does, without Kafka.

For tests of agents and of environments that have one of their own. Invariant: the agent's memory goes through JSON after
every step, as it does in the events.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
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
    View,
)
from environments.dispatch import closable
from environments.response import Item, Response
from environments.testing import EnvironmentHarness, ScriptedModel
from environments.tools import with_tools
from environments.usage import add_usage
from schemas.errors import ModelError, RolloutError, RolloutTimeout
from schemas.rows import PARAMS

MAX_STEPS = 1_000
"""Steps after which a played agent is taken to be stuck."""


class Play:
    """One rollout as it is played. `requests` are the parameters of the model calls made, in order.

    `result` are the fields that the agent adds to the result line.

    The harness must have been seeded; its items and tools are part of the rollout. `models` are scripted models by name,
    `policy` among them. `now` is the clock that the agent sees.
    """

    def __init__(
        self,
        agent: Agent,
        harness: EnvironmentHarness,
        models: Mapping[str, ScriptedModel],
        now: Callable[[], float] = time.time,
    ) -> None:
        self.agent, self.harness, self.models, self.now = agent, harness, models, now
        self.params = with_tools(harness.row[PARAMS], harness.seeded.tools)
        self.items: list[Item] = list(harness.seeded.items)
        self.requests: list[Mapping[str, Any]] = []
        self.usage: dict[str, Any] | None = None
        self.last: Response | None = None
        self.done = False
        self.failure: RolloutError | None = None
        self.result: Mapping[str, Any] = {}

    def run(self) -> dict[str, Any]:
        """The final Responses object; raises whatever a model, a tool or the environment raises."""
        memory: Mapping[str, Any] = {}
        replies: Sequence[Response] = ()
        for _ in range(MAX_STEPS):
            step = self.agent.next(self._view(memory), replies)
            self.failure = None
            self.items += step.append
            memory = json.loads(json.dumps(step.memory))
            if isinstance(step.action, Finish):
                self.result = step.action.result
                return self._response(step.action.fields)
            replies = self._do(step.action)
        raise AssertionError(f"{type(self.agent).__name__} took {MAX_STEPS} steps without finishing")

    def _view(self, memory: Mapping[str, Any]) -> View:
        return View(
            params=self.params,
            turn=len(self.requests),
            memory=memory,
            items=lambda: tuple(self.items),
            done=self.done,
            state=lambda: json.loads(self.harness.state_json or "{}"),
            closable=closable(self.harness.environment),
            failure=self.failure,
            now=self.now(),
        )

    def _do(self, action: Action) -> Sequence[Response]:
        if isinstance(action, CallModel):
            return self._replies(action)
        if isinstance(action, CloseEnvironment):
            self.harness.close()
        elif isinstance(action, CallTools):
            for c in action.calls:
                output = self.harness.call(c.name, c.arguments, call_id=c.call_id).output
                self.items.append({"type": "function_call_output", "call_id": c.call_id, "output": output})
        elif isinstance(action, AskEnvironment):
            move = self.harness.respond({} if self.last is None else self.last.body)
            self.items += move.items
            self.done = move.done
        return ()

    def _replies(self, action: CallModel) -> Sequence[Response]:
        try:
            return [self._ask(r) for r in action.requests]
        except (ModelError, RolloutTimeout) as e:
            if action.on_failure == "end":
                raise
            self.failure = e
            return ()

    def _ask(self, request: ModelRequest) -> Response:
        params = request.params_over(self.params)
        given = [*_as_items(self.params["input"]), *self.items] if request.input is None else list(request.input)
        params["input"] = given
        self.requests.append(params)
        self.last = Response(self.models[request.model].answer(params))
        self.usage = add_usage(self.usage, self.last.usage)
        return self.last

    def _response(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        body = {} if self.last is None else self.last.body
        return {**body, "output": list(self.items), "usage": self.usage, **fields}


def play(agent: Agent, harness: EnvironmentHarness, *replies: str | Mapping[str, Any] | Exception) -> dict[str, Any]:
    """Play a rollout against a policy that gives these replies; the final Responses object is ready for `harness.verify`."""
    return Play(agent, harness, {"policy": ScriptedModel(*replies)}).run()


def _as_items(given: str | Sequence[Item]) -> list[Item]:
    return [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
