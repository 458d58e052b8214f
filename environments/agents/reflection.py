"""A solution, a look at what may be wrong with it, and the next solution (agents.md, "reflection")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from environments.agents.agent import AgentConfig
from environments.agents.deliberation import NODE_RUNS, Deliberated, Deliberation
from environments.response import Item

ANSWERED = "<answer>"
"""A solution with this tag is final."""

_CRITIQUE = """\
Look at the solution above as a strict reviewer. What could be wrong with it: a step that does not follow, a case left out, a \
slip in the calculation, a condition of the task not met? Name each doubt and say how to settle it. If a solution is right, it \
still lacks its final answer between <answer> and </answer>."""


class ReflectionConfig(AgentConfig):
    """`max_reflections`: critiques at most, each followed by another solution."""

    max_reflections: int = Field(default=2, ge=0, le=(NODE_RUNS - 1) // 2)


class Reflection(Deliberation):
    """Solves, and as long as there is no `<answer>`, has the solution criticised and solves again.

    Only texts are carried from call to call. A critique is part of the conversation as a user message; the request for it
    is not. Replies at even places are solutions, the others critiques.
    """

    Config: ClassVar[type[AgentConfig]] = ReflectionConfig

    def ask(self, so_far: Deliberated) -> Sequence[Sequence[Item]]:
        replies = so_far.replies
        roles = ("assistant", "user")
        said = [{"role": roles[n % 2], "content": text} for n, text in enumerate(replies)]
        talk = [*_talk(so_far.given), *said]
        if len(replies) % 2 == 0:
            return [talk]
        if len(replies) // 2 >= self.config.max_reflections or ANSWERED in replies[-1]:
            return ()
        return [[*talk, {"role": "user", "content": _CRITIQUE}]]

    def aside(self, given: Sequence[Item]) -> Sequence[Item]:
        return [i for i in given if _is_old_output(i)]


def _talk(given: Sequence[Item]) -> list[Item]:
    """What of the input the model is shown: messages of the user, and plain ones of the assistant."""
    return [i for i in given if i.get("role") in ("user", "assistant") and not _is_old_output(i)]


def _is_old_output(item: Item) -> bool:
    if item.get("role") == "assistant":
        return not isinstance(item.get("content"), str)
    return item.get("type") == "function_call"
