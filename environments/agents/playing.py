"""Playing an agent with plain calls: what the agent worker does, without Kafka.

For tests of agents and of environments that have one of their own. Invariant: the agent's memory goes through JSON after
every step, as it does in the events.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from environments.agents.agent import Agent, AskEnvironment, CallModel, CallTools, Finish, ModelRequest, View
from environments.response import Item, Response
from environments.testing import EnvironmentHarness, ScriptedModel
from environments.usage import add_usage
from schemas.rows import PARAMS

MAX_STEPS = 1_000
"""Steps after which a played agent is taken to be stuck."""


class Play:
    """One rollout as it is played. `requests` are the parameters of the model calls made, in order.

    The harness must have been seeded; its items and tools are part of the rollout. `models` are scripted models by name,
    `policy` among them.
    """

    def __init__(self, agent: Agent, harness: EnvironmentHarness, models: Mapping[str, ScriptedModel]) -> None:
        self.agent, self.harness, self.models = agent, harness, models
        self.params = _with_tools(harness.row[PARAMS], harness.seeded.tools)
        self.items: list[Item] = list(harness.seeded.items)
        self.requests: list[Mapping[str, Any]] = []
        self.usage: dict[str, Any] | None = None
        self.last: Response | None = None
        self.done = False

    def run(self) -> dict[str, Any]:
        """The final Responses object; raises whatever a model, a tool or the environment raises."""
        memory: Mapping[str, Any] = {}
        replies: Sequence[Response] = ()
        for _ in range(MAX_STEPS):
            view = View(self.params, len(self.requests), memory, lambda: tuple(self.items), self.done)
            step = self.agent.next(view, replies)
            self.items += step.append
            memory = json.loads(json.dumps(step.memory))
            if isinstance(step.action, Finish):
                return self._response(step.action.fields)
            replies = self._do(step.action)
        raise AssertionError(f"{type(self.agent).__name__} took {MAX_STEPS} steps without finishing")

    def _do(self, action: CallModel | CallTools | AskEnvironment) -> Sequence[Response]:
        if isinstance(action, CallModel):
            return [self._ask(r) for r in action.requests]
        if isinstance(action, CallTools):
            for c in action.calls:
                output = self.harness.call(c.name, c.arguments, call_id=c.call_id).output
                self.items.append({"type": "function_call_output", "call_id": c.call_id, "output": output})
        elif self.last is not None:
            move = self.harness.respond(self.last.body)
            self.items += move.items
            self.done = move.done
        return ()

    def _ask(self, request: ModelRequest) -> Response:
        params = {**self.params, **request.params}
        params["input"] = [*_as_items(params["input"]), *self.items] if request.input is None else list(request.input)
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


def _with_tools(params: Mapping[str, Any], more: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    return {**params, "tools": [*(params.get("tools") or ()), *more]} if more else params
