"""RULER: the share of the references that the answer contains; for questions, whether it contains any."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from environments.environment import Context, Environment, Response, Reverify, Task, Verdict
from schemas.errors import DataError

QUESTIONS = ("qa_1", "qa_2")
SUBSETS = (
    *("cwe", "fwe", "vt", "niah_multiquery", "niah_multivalue"),
    *(f"niah_multikey_{i}" for i in (1, 2, 3)),
    *(f"niah_single_{i}" for i in (1, 2, 3)),
    *QUESTIONS,
)
"""The known subsets; a result has a field of each, null but for its own, so that means are per subset."""

_TAKEN = frozenset({"reward", "response", "responses_create_params"})


class RulerTask(Task):
    """References (`outputs`) that the answer must contain, the context's length in tokens, and the kind of the task."""

    outputs: list[str] = Field(min_length=1)
    length: int
    subset: str


class Ruler(Environment):
    """Rewards substrings, without regard to case."""

    Task = RulerTask
    reverify = Reverify.STATELESS

    def verify(self, task: RulerTask, response: Response, state: Any, context: Context) -> Verdict:
        if task.subset in _TAKEN or task.subset in RulerTask.model_fields:
            raise DataError(f"row: a subset cannot be called {task.subset!r}, which is another field's name")
        answer = response.flat_text().strip().lower()
        found = [reference.lower() in answer for reference in task.outputs]
        reward = float(any(found)) if task.subset in QUESTIONS else sum(found) / len(found)
        fields: dict[str, Any] = {name: reward if name == task.subset else None for name in SUBSETS}
        return Verdict(reward, **fields)
