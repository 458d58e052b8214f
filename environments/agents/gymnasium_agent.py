"""Step by step with an environment that scores each step (agents.md, "gymnasium_agent").

Invariant: what the environment said before the first turn is part of the request, what it said later part of the response; an
environment that can be closed is closed however the rollout ends here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from environments.agents.agent import (
    Agent,
    AgentConfig,
    AskEnvironment,
    CallModel,
    CloseEnvironment,
    Finish,
    Step,
    View,
)
from environments.response import Item, Response
from schemas.errors import ModelError


class GymnasiumConfig(AgentConfig):
    """`max_steps`: turns of the policy at most."""

    max_steps: int = Field(default=10, ge=1)


class GymnasiumAgent(Agent):
    """A turn of the policy, a step of the environment, until one of them ends it."""

    Config: ClassVar[type[AgentConfig]] = GymnasiumConfig

    def next(self, view: View, replies: Sequence[Response]) -> Step:
        memory = view.memory or {"opening": len(view.items())}
        if replies:
            return Step(AskEnvironment(), replies[-1].output, memory)
        if view.memory.get("closing"):
            return self._end(view, memory)
        if view.failure is not None:
            return self._close(view, {**memory, "error": str(view.failure)})
        if view.done or view.turn >= self.config.max_steps:
            return self._close(view, memory)
        return Step(CallModel(on_failure="tell"), memory=memory)

    def _close(self, view: View, memory: Mapping[str, Any]) -> Step:
        if not (view.closable and view.state().get("closes", True)):
            return self._end(view, memory)
        return Step(CloseEnvironment(), memory={**memory, "closing": True})

    def _end(self, view: View, memory: Mapping[str, Any]) -> Step:
        if "error" in memory:
            raise ModelError(memory["error"])
        items, opening = view.items(), memory["opening"]
        given = [*as_messages(view.params.get("input")), *items[:opening]]
        result = {"responses_create_params": {**view.params, "input": given}}
        return Step(Finish({"output": list(items[opening:])}, result))


def as_messages(given: Any) -> list[Item]:
    """The row's input as items that all have a type; a text is one user message."""
    items: Sequence[Item] = [{"role": "user", "content": given}] if isinstance(given, str) else given or ()
    return [i if "type" in i else {"type": "message", **i} for i in items]
