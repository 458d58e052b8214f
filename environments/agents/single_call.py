"""One model call, whose tool calls are the answer (agents.md, "non_executing_simple_agent", "tool_simulation_agent")."""

from __future__ import annotations

from collections.abc import Sequence

from environments.agents.agent import Agent, CallModel, Finish, Step, View
from environments.response import Response


class SingleCall(Agent):
    """Calls the model once and ends; nothing is executed."""

    def next(self, view: View, replies: Sequence[Response]) -> Step:
        return Step(Finish(), replies[-1].output) if replies else Step(CallModel())
