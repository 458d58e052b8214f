"""Questions answered with tools, scored step by step: GSM8k with a calculator, HotPotQA with Wikipedia."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from environments.aviary import gsm8k, hotpotqa
from environments.aviary.dataset import question, target_of
from environments.aviary.episode import AviaryEnvironment, Call, Opening, Outcome, user
from environments.aviary.hotpotqa import Reading
from environments.environment import Config, Context, Task
from schemas.errors import DataError


class AviaryTask(Task):
    """A question by its number, or with it: `question` and `answer` win over the number's."""

    task_idx: int
    question: str | None = None
    answer: str | float | None = None


class AviaryConfig(Config):
    """`kind`: which questions. `dataset`: a JSONL file for rows without a question. `split` is GSM8k's.

    `misfit_reward`: for a call whose arguments have wrong names, which the policy is told; the reference's rollout fails.
    """

    kind: Literal["gsm8k", "hotpotqa"] = "gsm8k"
    dataset: str | None = None
    split: Literal["train", "val"] = "train"
    misfit_reward: float = 0.0


class Aviary(AviaryEnvironment):
    """Rewards the sum of its steps' rewards: 1 for a right answer, -1 for misuse in GSM8k."""

    Task = AviaryTask
    Config = AviaryConfig
    State = Reading

    async def reset(self, task: AviaryTask, episode: Reading, context: Context) -> Opening:
        asked, _ = self._question(task)
        if self.config.kind == "gsm8k":
            self._target(task)
            return Opening((user(asked),), gsm8k.TOOLS)
        return Opening((user(f"Question: {asked}"),), hotpotqa.TOOLS)

    async def step(self, task: AviaryTask, calls: Sequence[Call], episode: Reading, context: Context) -> Outcome:
        if self.config.kind == "gsm8k":
            return gsm8k.step(calls, self._target(task), self.config.misfit_reward)
        _, gold = self._question(task)
        return await hotpotqa.step(calls, str(gold), episode, context, self.config.misfit_reward)

    def _target(self, task: AviaryTask) -> float:
        return target_of(self._question(task)[1])

    def _question(self, task: AviaryTask) -> tuple[str, Any]:
        if task.question is not None and task.answer is not None:
            return task.question, task.answer
        if self.config.dataset is None:
            raise DataError("the row has no question and answer, and the config names no `dataset` to find row.task_idx in")
        return question(self.config.dataset, self.config.kind, self.config.split, task.task_idx)
