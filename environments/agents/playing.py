"""Playing an agent with plain calls: what the agent worker does, without Kafka.

For tests of agents and of environments that have one of their own. Invariant: the agent's memory goes through JSON after
every step, as it does in the events.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from environments.agents.agent import Action, Agent, AskEnvironment, CallModel, CallTools, ModelRequest, View
from environments.response import Item, Response
from environments.testing import EnvironmentHarness
from environments.usage import add_usage

Model = Callable[[Mapping[str, Any], str], Mapping[str, Any]]
"""A scripted model: request parameters (with `input`) and the model's name in, a Responses object out; may raise."""

MAX_STEPS = 1_000
"""Steps after which a played agent is taken to be stuck."""


@dataclass
class Play:
    """One rollout as it is played; `requests` are the parameters of the model calls made."""

    agent: Agent
    harness: EnvironmentHarness
    model: Model
    params: Mapping[str, Any]
    items: list[Item] = field(default_factory=list)
    requests: list[Mapping[str, Any]] = field(default_factory=list)
    usage: dict[str, Any] | None = None
    last: Response | None = None
    done: bool = False

    def run(self) -> dict[str, Any]:
        """The final Responses object; raises whatever the model, a tool or the environment raises."""
        memory: Mapping[str, Any] = {}
        replies: Sequence[Response] = ()
        for _ in range(MAX_STEPS):
            view = View(self.params, len(self.requests), memory, lambda: tuple(self.items), self.done)
            step = self.agent.next(view, replies)
            self.items += step.append
            memory = json.loads(json.dumps(step.memory))
            if not isinstance(step.action, CallModel | CallTools | AskEnvironment):
                return self._response(step.action.fields)
            replies = self._do(step.action)
        raise AssertionError(f"{type(self.agent).__name__} took {MAX_STEPS} steps without finishing")

    def _do(self, action: Action) -> Sequence[Response]:
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
        self.last = Response(self.model(params, request.model))
        self.usage = add_usage(self.usage, self.last.usage)
        return self.last

    def _response(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        body = {} if self.last is None else self.last.body
        return {**body, "output": list(self.items), "usage": self.usage, **fields}


def play(agent: Agent, harness: EnvironmentHarness, model: Model) -> dict[str, Any]:
    """Play a rollout of the harness's current row and return the final Responses object, ready for `harness.verify`."""
    return Play(agent, harness, model, harness.row["responses_create_params"]).run()


def _as_items(given: str | Sequence[Item]) -> list[Item]:
    return [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
