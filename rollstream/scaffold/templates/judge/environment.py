"""A judge decides whether a reply says what a reference says. Invariant: a failed call is a failure and never a score."""

from __future__ import annotations

import re
from typing import Any

from environments.common.judging import Judge, JudgeConfig
from environments.common.template import Template
from environments.environment import Context, Environment, Response, Reverify, Task, Verdict

PROMPT = Template.parse(
    """Two answers to one question follow. Do they say the same? Wording, length and order do not matter.

Question: {question}

Reference: {reference}

Answer to judge: {answer}

Think it over, then end with one label: [[SAME]] or [[OTHER]].
"""
)
LABEL = re.compile(r"\[\[(SAME|OTHER)\]\]")


class ReferenceTask(Task):
    """`question` and `reference`: what the judge is shown beside the reply."""

    question: str
    reference: str


class MyEnvironment(Environment):
    """Rewards a reply that the judge calls the same as the reference with 1.0, any other with 0.0."""

    Task = ReferenceTask
    Config = JudgeConfig
    reverify = Reverify.STATELESS

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.judge = Judge(self.config)

    async def verify(self, task: ReferenceTask, response: Response, state: Any, context: Context) -> Verdict:
        answer = response.joined_text()
        if not answer:
            return Verdict(0.0, judge_label=None)  # nothing to judge: no call is paid for
        values = {"question": task.question, "reference": task.reference, "answer": answer}
        prompt = self.judge.prompt(context, PROMPT, values, candidate=["answer"], labels=["[[SAME]]", "[[OTHER]]"])
        reply = await self.judge.ask(context, prompt)
        label = last_label(reply.last_part or "")
        return Verdict(float(label == "SAME"), judge_label=label, judge_evaluations=[reply.evaluation(label)])


def last_label(text: str) -> str | None:
    """The last label in a judge's text; None when there is none."""
    found = LABEL.findall(text)
    return str(found[-1]) if found else None
