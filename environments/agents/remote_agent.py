"""A service of the user's own as the agent: it answers like a model and runs some tools itself (agents.md, "remote_agent").

The service is a named model of the settings (`models.NAME`), which gives it the retries, the bounds and the masking of every
endpoint. Invariant: a call that the service has answered itself is not run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field, field_validator

from environments.agents.agent import Agent, AgentConfig, CallModel, CallTools, Finish, ModelRequest, Step, View
from environments.agents.simple_agent import MAX_IDLE_TURNS, tool_call
from environments.response import Item, Response, is_assistant_message
from schemas.events import ToolCall


class RemoteConfig(AgentConfig):
    """`model`: the name under which the settings know the service. `max_steps`: calls of it at most; null for no limit.

    `remote_responses_timeout_secs` bounds one call.
    """

    model: str = Field(default="policy", min_length=1)
    max_steps: int | None = Field(default=None, ge=1)
    remote_responses_timeout_secs: float = Field(default=1_800, gt=0)
    agent_base_url: None = None

    @field_validator("agent_base_url", mode="before")
    @classmethod
    def _named(cls, value: Any) -> None:
        if value is not None:
            raise ValueError(
                "a service is named, not addressed, by its agent: put the address into the settings (models.NAME.url) "
                "and the name here (model: NAME)"
            )


class RemoteAgent(Agent):
    """Calls the service and runs the tool calls that it leaves open, until it leaves none and has said something."""

    Config: ClassVar[type[AgentConfig]] = RemoteConfig

    def next(self, view: View, replies: Sequence[Response]) -> Step:
        if not replies:
            return Step(Finish() if view.done or self._at_limit(view) else self._call())
        output = replies[-1].output
        calls = open_calls(output)
        if calls:
            return Step(CallTools(calls, may_end=self._at_limit(view)), output)
        idle = int(view.memory.get("idle", 0)) + 1
        over = any(map(is_assistant_message, output)) or self._at_limit(view) or idle >= MAX_IDLE_TURNS
        return Step(Finish() if over else self._call(), output, {} if over else {"idle": idle})

    def _call(self) -> CallModel:
        request = ModelRequest(model=self.config.model, timeout_s=self.config.remote_responses_timeout_secs)
        return CallModel((request,))

    def _at_limit(self, view: View) -> bool:
        return self.config.max_steps is not None and view.turn >= self.config.max_steps


def open_calls(output: Sequence[Item]) -> tuple[ToolCall, ...]:
    """The calls of one reply that have no output in it, in order; of several with one id, the last."""
    answered = {str(i.get("call_id")) for i in output if i.get("type") == "function_call_output"}
    calls = {c.call_id: c for c in (tool_call(i) for i in output if i.get("type") == "function_call")}
    return tuple(c for c in calls.values() if c.call_id not in answered)
