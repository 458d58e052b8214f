"""Several ways of thinking at once, and a consensus of them (agents.md, "parallel_thinking")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from environments.agents.agent import AgentConfig
from environments.agents.deliberation import ANSWER_FORMAT, Deliberated, Deliberation, numbered, prompt
from environments.response import Item

MAX_PATHS = 64
"""Calls at once of one rollout. The consensus is asked for in a prompt that holds all paths; no context holds more."""

PERSPECTIVES = (
    "Solve the problem by deduction: one step after another, each following from what is known before it.",
    "Solve the problem by cases: list the possibilities and rule out those that contradict something.",
    "Solve the problem backwards: begin with what the solution must fulfil and find out what that leaves open.",
    "Solve the problem with a table: write down systematically what is known and fill in what follows.",
)

_ANY = "Think the problem over carefully and solve it."

_CONSENSUS = """\
A problem was solved several times, independently and in different ways. Compare the solutions: where they agree, and which \
of them is right where they do not. Decide on one answer. {form}

# Problem
{task}

# Solutions
{paths}"""


class ParallelThinkingConfig(AgentConfig):
    """`num_parallel_paths`: calls made at once. `perspective_prompts`: how each is told to think; missing ones are general."""

    num_parallel_paths: int = Field(default=4, ge=1, le=MAX_PATHS)
    perspective_prompts: tuple[str, ...] = PERSPECTIVES


class ParallelThinking(Deliberation):
    """Asks for the solution in all ways at once, then for the consensus: one call more than there are paths."""

    Config: ClassVar[type[AgentConfig]] = ParallelThinkingConfig

    def ask(self, so_far: Deliberated) -> Sequence[Sequence[Item]]:
        count, replies = self.config.num_parallel_paths, so_far.replies
        if not replies:
            ways = [*self.config.perspective_prompts[:count], *[_ANY] * (count - len(self.config.perspective_prompts))]
            return [prompt(f"{way}\n\n# Problem\n{so_far.task}") for way in ways]
        if len(replies) > count:
            return ()
        paths = numbered("Solution", replies)
        return [prompt(_CONSENSUS.format(form=ANSWER_FORMAT, task=so_far.task, paths=paths))]
