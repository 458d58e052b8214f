"""Closed-book questions: right beats abstaining, and abstaining beats wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from environments.abstention.reading import abstains, answer_of, grade
from environments.common import replies
from environments.common.judging import Judge, JudgeConfig, ModelName
from environments.common.template import Template
from environments.common.thinking import without_thinking
from environments.environment import Context, Environment, Response, Reverify, Task, Verdict
from schemas.errors import JudgeError

_HERE = Path(__file__).parent
_PLACES = ("question", "target", "predicted_answer")


class AbstentionTask(Task):
    """A question and its answer; what is missing counts as empty."""

    id: int | str | None = None
    question: str | None = ""
    answer: str | None = ""


class AbstentionConfig(JudgeConfig):
    """Rewards, and the text that means abstaining. A template of one's own has the places of the built-in one.

    `judge_prompt_template` is the template's text; None is the built-in one.
    """

    judge_model_server: ModelName = "genrm"
    judge_endpoint_max_concurrency: int | None = Field(None, ge=1)
    judge_prompt_template: str | None = None
    abstention_reward: float = 0.5
    abstention_token: str = "[IDK]"  # noqa: S105 - not a secret
    correct_reward: float = 1.0
    incorrect_reward: float = 0.0


class Abstention(Environment):
    """Asks a judge, unless the answer is the token for "I don't know"."""

    Task = AbstentionTask
    Config = AbstentionConfig
    reverify = Reverify.STATELESS

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.judge = Judge(self.config)
        own = self.config.judge_prompt_template
        self.template = Template.parse(own) if own else Template.load("prompts/grade.txt", base=_HERE, places=_PLACES)

    async def verify(self, task: AbstentionTask, response: Response, state: Any, context: Context) -> Verdict:
        answer = answer_of(response)
        if abstains(answer, self.config.abstention_token):
            return self._scored("abstain", task, answer, None)
        said = await self._judged(task, answer, context)
        return self._scored(grade(said), task, answer, said)

    async def _judged(self, task: AbstentionTask, answer: str, context: Context) -> str:
        """The judge's text; raises `JudgeError` when it is empty, since a judge cut short in its thinking has not judged."""
        values = {"question": task.question or "", "target": task.answer or "", "predicted_answer": answer}
        prompt = self.judge.prompt(context, self.template, values, candidate=("predicted_answer",))
        reply = await self.judge.ask(context, prompt)
        said = without_thinking(replies.last_message(reply.response) or "")
        if not said:
            raise JudgeError("empty judge response")
        return said

    def _scored(self, verdict: str, task: AbstentionTask, answer: str, said: str | None) -> Verdict:
        flags = {name: float(name == verdict) for name in ("correct", "abstain", "incorrect")}
        rewards = {
            "correct": self.config.correct_reward,
            "abstain": self.config.abstention_reward,
            "incorrect": self.config.incorrect_reward,
        }
        return Verdict(
            rewards[verdict],
            extracted_answer=answer,
            ground_truth=task.answer or "",
            verdict=verdict,
            judge_output=said,
            is_correct=flags["correct"],
            is_abstain=flags["abstain"],
            is_incorrect=flags["incorrect"],
            omniscience_index=flags["correct"] - flags["incorrect"],
        )
