"""A task split into sub-tasks that are solved one after another and put together (agents.md, "orchestrator")."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import ClassVar

from pydantic import Field

from environments.agents.agent import AgentConfig
from environments.agents.deliberation import ANSWER_FORMAT, NODE_RUNS, Deliberated, Deliberation, numbered, prompt
from environments.response import Item

# Possessive: a long run of spaces or digits is read once.
_SUBTASK = re.compile(r"SUBTASK\s++\d++:[^\S\n]*+(\S.*)")

_SPLIT = """\
Split the task below into questions that can be answered one by one. Each must be self-contained: whoever answers it sees \
neither the task nor the other questions. Ask at most {count}, fewer when fewer will do, and do not answer them yourself.

Write each on a line of its own, in this form:
SUBTASK 1: the first question
SUBTASK 2: the second question

# Task
{task}"""

_SOLVE = """\
Answer the question below completely. Show how you get there and end with the result.

# Question
{question}"""

_COMBINE = """\
A task was split into sub-tasks, and each was answered on its own. Solve the task with the help of these answers. Check them: \
an answer may be wrong. {form}

# Task
{task}

# Sub-tasks and their answers
{answers}"""


class OrchestratorConfig(AgentConfig):
    """`max_subtasks`: of those that the model names, the first so many are solved."""

    max_subtasks: int = Field(default=5, ge=1, le=NODE_RUNS - 2)


class Orchestrator(Deliberation):
    """Asks for sub-tasks, solves each in a call of its own, and asks for the answer: 2 calls and one for each sub-task."""

    Config: ClassVar[type[AgentConfig]] = OrchestratorConfig

    def ask(self, so_far: Deliberated) -> Sequence[Sequence[Item]]:
        replies = so_far.replies
        if not replies:
            return [prompt(_SPLIT.format(count=self.config.max_subtasks, task=so_far.task))]
        tasks = subtasks(replies[0], self.config.max_subtasks) or [so_far.task]
        solved = replies[1:]
        if len(solved) < len(tasks):
            return [prompt(_SOLVE.format(question=tasks[len(solved)]))]
        if len(solved) > len(tasks):
            return ()
        pairs = [f"{task}\n\n### Answer\n{answer}" for task, answer in zip(tasks, solved, strict=True)]
        return [prompt(_COMBINE.format(form=ANSWER_FORMAT, task=so_far.task, answers=numbered("Sub-task", pairs)))]


def subtasks(text: str, limit: int) -> list[str]:
    """The questions on lines such as `SUBTASK 2: …`, the first `limit` of them."""
    return [m[1].strip() for m in islice(_SUBTASK.finditer(text), limit)]
