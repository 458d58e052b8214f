"""Draft, criticism, revision. Invariant: `next` depends on its arguments alone; what it must remember is in the memory."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from environments.agents.agent import Agent, AgentConfig, CallModel, Finish, ModelRequest, Step, View
from environments.response import Item, Response

MAX_QUOTED = 20_000
"""Characters of a draft that its critic reads; the memory travels in every event."""


class RevisingConfig(AgentConfig):
    """`rounds`: how often a draft is criticised and revised."""

    rounds: int = Field(default=1, ge=0, le=10)


class Revising(Agent):
    """Asks for a draft; then, `rounds` times, for a criticism of it and for a new one. The last draft is the answer."""

    Config = RevisingConfig

    def next(self, view: View, replies: Sequence[Response]) -> Step:
        stage, done = view.memory.get("stage", "draft"), view.memory.get("rounds", 0)
        if not replies:
            return Step(CallModel(), memory={"stage": "draft"})
        text = replies[-1].flat_text()[:MAX_QUOTED]
        if stage == "criticism":
            prompt = f"Your draft:\n{view.memory['draft']}\n\nA critic says:\n{text}\n\nWrite a better answer."
            return Step(ask(view, prompt), memory={"stage": "draft", "rounds": done + 1})
        if done < self.config.rounds:
            prompt = f"What is wrong or missing in this answer?\n\n{text}"
            return Step(ask(view, prompt), memory={"stage": "criticism", "rounds": done, "draft": text})
        return Step(Finish(result={"rounds": done}), replies[-1].output)


def ask(view: View, prompt: str) -> CallModel:
    """A call with the row's own input and `prompt` behind it."""
    given = view.params["input"]
    items: list[Item] = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
    return CallModel((ModelRequest(input=[*items, {"role": "user", "content": prompt}]),))
