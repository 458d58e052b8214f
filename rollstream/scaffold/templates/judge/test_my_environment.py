"""What the judge is asked, and what becomes of its answers."""

from __future__ import annotations

import pytest

from environments.context import Context
from environments.registry import Registry
from environments.testing import EnvironmentHarness, ScriptedModel, response
from schemas.errors import JudgeError

ROW = {"responses_create_params": {"input": "Why?"}, "question": "Why does ice float?", "reference": "It is less dense."}
BINDING = Registry.load().binding("my_environment", None)


def harness(judge: ScriptedModel) -> EnvironmentHarness:
    made = EnvironmentHarness(BINDING, context=Context(models={"judge": judge}))
    made.seed(ROW)
    return made


@pytest.mark.parametrize(
    ("said", "label", "reward"),
    [("[[SAME]]", "SAME", 1.0), ("[[SAME]] … [[OTHER]]", "OTHER", 0.0), ("I cannot tell", None, 0.0), ("", None, 0.0)],
)
def test_the_last_label_of_the_judge_counts(said: str, label: str | None, reward: float) -> None:
    verdict = harness(ScriptedModel(said)).verify(response("It is lighter."))
    assert (verdict.reward, verdict.fields["judge_label"]) == (reward, label)


def test_the_judge_sees_question_reference_and_reply() -> None:
    judge = ScriptedModel("[[SAME]]")
    harness(judge).verify(response("It is lighter."))
    asked = str(judge.requests[0]["input"])
    assert all(part in asked for part in ("Why does ice float?", "It is less dense.", "It is lighter."))


def test_an_empty_reply_is_not_judged() -> None:
    judge = ScriptedModel()
    assert harness(judge).verify(response()).reward == 0.0
    assert judge.requests == []


def test_a_judge_that_cannot_be_reached_is_no_score() -> None:
    with pytest.raises(JudgeError):
        harness(ScriptedModel(JudgeError("503"))).verify(response("It is lighter."))
