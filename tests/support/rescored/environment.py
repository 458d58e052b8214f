"""An environment that can be verified again: its reward is a number that the answer ends with, or what the row says happens."""

from __future__ import annotations

from typing import Any

from support.faulty.environment import act

from environments.context import Context
from environments.environment import Environment, Response, Reverify, Task, Verdict
from schemas.errors import JudgeError


class RescoredTask(Task):
    """`verify_does`: see `support.faulty.environment.act`; `ask` and `judge` ask the judge, `no_judge` fails as one does."""

    verify_does: str = "ok"
    bonus: float = 0.0


class Rescored(Environment):
    """Reward: the last word of the answer, as a number, and the row's bonus."""

    Task = RescoredTask
    reverify = Reverify.STATELESS
    version = "7"

    async def verify(self, task: RescoredTask, response: Response, state: None, context: Context) -> Any:
        if task.verify_does == "no_judge":
            raise JudgeError("the judge is away", detail="503")
        if task.verify_does == "judge":
            await context.model("judge").create({"input": [{"role": "user", "content": response.flat_text()}]})
        if (waiting := act(task.verify_does)) is not None:
            await waiting
        last = response.flat_text().split()[-1]
        return Verdict(float(last) + task.bonus, said=last, draw=context.rng.random())
