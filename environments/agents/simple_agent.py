"""The tool-calling loop of agents.md, "simple_agent"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field

from environments.agents.agent import Agent, AgentConfig, CallModel, CallTools, Finish, Step, View
from environments.response import Item, Response, is_assistant_message
from schemas.events import ToolCall

MAX_IDLE_TURNS = 8
"""Turns in a row with neither a call nor a message (reasoning alone) after which the rollout ends as it stands. The
reference asks for ever; a model that says nothing eight times over a growing input does not begin to."""


class SimpleAgentConfig(AgentConfig):
    """`max_steps`: model calls at most; null or 0 for no limit."""

    max_steps: int | None = Field(default=None, ge=0)


class SimpleAgent(Agent):
    """Call the model, run its tool calls in order, call it again, until a message without calls ends the rollout."""

    Config: ClassVar[type[AgentConfig]] = SimpleAgentConfig

    def next(self, view: View, replies: Sequence[Response]) -> Step:
        if not replies:
            action = Finish() if view.done or self._at_limit(view.turn) else CallModel()
            return Step(action, memory=view.memory)
        return self._after(view, replies[-1])

    def _after(self, view: View, reply: Response) -> Step:
        output = reply.output
        calls = tuple(tool_call(i) for i in output if i.get("type") == "function_call")
        if reply.incomplete_reason is not None:
            return Step(Finish(), output)
        if calls:
            return Step(CallTools(calls, may_end=self._at_limit(view.turn)), output)
        if any(is_assistant_message(i) for i in output) or self._at_limit(view.turn):
            return Step(Finish(), output)
        idle = int(view.memory.get("idle", 0)) + 1
        return Step(Finish() if idle >= MAX_IDLE_TURNS else CallModel(), output, {"idle": idle})

    def _at_limit(self, turn: int) -> bool:
        return bool(self.config.max_steps) and turn >= self.config.max_steps


def tool_call(item: Item) -> ToolCall:
    """The call in a `function_call` item; what is no text is an empty one."""
    return ToolCall(_text(item.get("call_id")), _text(item.get("name")), _text(item.get("arguments")))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
