"""Single-step function calling: 1.0 when the calls that were made are the expected ones, in any order, else 0.0."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from environments.environment import Context, Environment, Response, Reverify, Task, Verdict
from environments.xlam_fc.matching import Call, count_matches, predicted_calls


class XlamTask(Task):
    """The calls that are expected; each has a `name` and `arguments` (an object, or the JSON text of one)."""

    expected_answers: list[dict[str, Any]] = Field(default_factory=list)


class XlamFc(Environment):
    """Rewards a rollout whose calls are the expected ones, no fewer and no more."""

    Task = XlamTask
    reverify = Reverify.STATELESS

    def verify(self, task: XlamTask, response: Response, state: Any, context: Context) -> Verdict:
        predicted = predicted_calls(response)
        expected = [Call.of(answer) for answer in task.expected_answers]
        correct = count_matches(expected, predicted)
        return Verdict(
            1.0 if correct == len(expected) == len(predicted) else 0.0,
            num_expected=len(expected),
            num_predicted=len(predicted),
            num_correct=correct,
            predicted_calls=[{"name": call.name, "arguments": call.arguments} for call in predicted],
        )
