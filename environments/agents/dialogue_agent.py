"""A conversation with whom the environment plays: the policy speaks, the environment answers as the user.

For user simulators and other partners that talk. Invariant: the environment is asked exactly when the policy has spoken and
all its tool calls have been answered; what it answers is the next turn's last item.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from environments.agents.agent import Agent, AgentConfig, AskEnvironment, CallModel, CallTools, Finish, Step, View
from environments.agents.simple_agent import MAX_IDLE_TURNS, tool_call
from environments.response import Response, is_assistant_message


class DialogueConfig(AgentConfig):
    """`max_steps`: model calls at most. The environment ends the conversation before, when its user has nothing to add."""

    max_steps: int = Field(default=30, ge=1, le=1_000)


class DialogueAgent(Agent):
    """Calls the model, runs its tool calls, and lets the environment answer what it says, until the environment ends it."""

    Config: ClassVar[type[AgentConfig]] = DialogueConfig

    def next(self, view: View, replies: Sequence[Response]) -> Step:
        over = view.done or view.turn >= self.config.max_steps
        if not replies:
            return Step(Finish() if over else CallModel(), memory=view.memory)
        output = replies[-1].output
        if replies[-1].incomplete_reason is not None:
            return Step(Finish(), output)
        calls = tuple(tool_call(i) for i in output if i.get("type") == "function_call")
        if calls:
            return Step(CallTools(calls, may_end=over), output)
        if any(map(is_assistant_message, output)):
            return Step(AskEnvironment(), output)
        idle = int(view.memory.get("idle", 0)) + 1
        return Step(Finish() if over or idle >= MAX_IDLE_TURNS else CallModel(), output, {"idle": idle})
