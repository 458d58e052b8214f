"""Generated reasoning tasks with rewards from 0 to 1, by the scorer of each task in the reasoning-gym library."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from environments.environment import Config, Context, Environment, Response, Reverify, Scores, Task, Verdict
from environments.reasoning_gym.extraction import extract_answer
from environments.reasoning_gym.isolation import score_answer
from schemas.errors import VerifierError


class ReasoningGymTask(Task):
    """An entry of the library. `metadata.source_dataset` names its task; the rest of it is the scorer's."""

    question: str
    answer: str | None
    metadata: dict[str, Any]


class ReasoningGymConfig(Config):
    """`score_cpu_s`: CPU seconds of a score in the sandbox, and `score_memory_mib` its memory.

    `exact_grids`: a right grid of arc_agi or rearc earns 1; in the library, whose entries have not been through JSON, it
    does, in the reference it earns 0.05.
    """

    score_cpu_s: int = Field(default=5, ge=1, le=600)
    score_memory_mib: int = Field(default=1024, ge=256)
    exact_grids: bool = False


class ReasoningGym(Environment):
    """Scores the answer between tags, in a box, or the whole text."""

    Task = ReasoningGymTask
    Config = ReasoningGymConfig
    reverify = Reverify.STATELESS
    metrics = Scores(answer="extracted_answer", subset="task_name")

    async def verify(self, task: ReasoningGymTask, response: Response, state: Any, context: Context) -> Verdict:
        name = task.metadata.get("source_dataset")
        if not isinstance(name, str) or not name:
            raise VerifierError("row: metadata.source_dataset names no task, so there is no scorer", retryable=False)
        answer = extract_answer(response.flat_text())
        value, error = await score_answer(
            name,
            answer,
            {"question": task.question, "answer": task.answer, "metadata": task.metadata},
            context,
            cpu_s=self.config.score_cpu_s,
            memory=self.config.score_memory_mib << 20,
            tuples=self.config.exact_grids,
        )
        return Verdict(value, task_name=name, score=value, extracted_answer=answer, scorer_error=error)
