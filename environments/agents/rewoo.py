"""A plan made before anything is looked up, its steps, and a solution from their results (agents.md, "rewoo")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from environments.agents.agent import AgentConfig
from environments.agents.deliberation import ANSWER_FORMAT, NODE_RUNS, Deliberated, Deliberation, prompt
from environments.agents.plan import PlanStep, read_plan
from environments.response import Item

MAX_STEPS = NODE_RUNS - 2
"""The first call makes the plan, the last one solves."""

_PLAN = """\
Make a plan for solving the task below; do not solve it yet. Each step of the plan has a reason and a question to a language \
model that sees nothing but this question. Name the results #E1, #E2 and so on; a question may contain the names of earlier \
results, which are replaced by what came out.

Write each step on one line, in this form:
Plan: why this step is needed #E1 = LLM[the question]
Plan: why the next one is needed #E2 = LLM[a question about #E1]

# Task
{task}"""

_SOLVE = """\
Solve the task below with the help of the plan and of what its steps brought to light. Some of it may be wrong. {form}

# Plan and results
{evidence}

# Task
{task}"""

_NO_STEPS = "(none)"


class RewooConfig(AgentConfig):
    """`max_steps`: of the steps that the model plans, the first so many are taken."""

    max_steps: int = Field(default=MAX_STEPS, ge=1, le=MAX_STEPS)


class Rewoo(Deliberation):
    """Plans, asks once for each step with earlier results put in, and solves: 2 calls and one for each step."""

    Config: ClassVar[type[AgentConfig]] = RewooConfig

    def ask(self, so_far: Deliberated) -> Sequence[Sequence[Item]]:
        replies = so_far.replies
        if not replies:
            return [prompt(_PLAN.format(task=so_far.task))]
        steps = read_plan(replies[0], self.config.max_steps)
        results = replies[1:]
        if len(results) < len(steps):
            known = {step.label: result for step, result in zip(steps, results, strict=False)}
            return [prompt(steps[len(results)].given(known))]
        if len(results) > len(steps):
            return ()
        evidence = _evidence(steps, results) or _NO_STEPS
        return [prompt(_SOLVE.format(form=ANSWER_FORMAT, evidence=evidence, task=so_far.task))]


def _evidence(steps: Sequence[PlanStep], results: Sequence[str]) -> str:
    told = (f"Plan: {s.reason}\n{s.label} = {s.word}[{s.input}]\n{s.label}: {r}" for s, r in zip(steps, results, strict=True))
    return "\n\n".join(told)
