"""The judge form can fail: calls, prompts, verdicts and places that differ do not pass; every kind of entry is answered."""

from __future__ import annotations

from typing import Any

import pytest

from environments.common.judging import Judge, JudgeConfig
from environments.context import Context
from environments.environment import Environment
from environments.testing import EnvironmentHarness, message, response
from schemas.errors import JudgeError
from tests.conformance.cases import Case
from tests.conformance.forms.form import Outcome
from tests.conformance.forms.judge import Judge as JudgeForm
from tests.conformance.forms.judge import ScriptedJudge, answer

FORM = JudgeForm()


class Swapping(Environment):
    """Asks `gold ~ answer`, then the two exchanged (or the same again, when it forgets to)."""

    def __init__(self, *, forgets: bool = False) -> None:
        super().__init__()
        self.judge, self.forgets = Judge(JudgeConfig()), forgets

    async def verify(self, task, response, state, context):
        raise NotImplementedError

    async def both(self, context: Context) -> None:
        await self.judge.ask(context, "first: gold, second: answer.")
        await self.judge.ask(context, "first: gold, second: answer!" if self.forgets else "first: answer, second: gold.")


def judged(*, forgets: bool = False, outcome: dict[str, Any] | None = None, **data: Any) -> list[str]:
    replies = [{"reply": "yes"}, {"reply": "yes"}]
    case = Case("x/1", "x", {"judge": replies, "expected": {}, **data})
    harness = EnvironmentHarness(Swapping(), context=FORM.context(case, Context()))
    harness._wait(Swapping(forgets=forgets).both(harness.context))
    return FORM.check(case, harness, Outcome(outcome or {}))


BOTH = [{"a": "gold", "b": "answer"}, {"a": "answer", "b": "gold"}]


@pytest.mark.parametrize(
    "data",
    [
        {"judge_calls": 2},
        {"expected": {"judge_calls": 2}},
        {"judge_inputs": BOTH},
        {"judge_prompt_contains": ["gold", "answer"], "judge_prompt_lacks": ["silver"]},
        {"judge_verdicts": ["yes"], "outcome": {"judge_evaluations": [{"verdict_label": "yes"}]}},
        {"judge_verdicts": [], "outcome": {}},
    ],
)
def test_what_agrees_passes(data):
    assert judged(**data) == []


@pytest.mark.parametrize(
    "data",
    [
        {"judge_calls": 1},
        {"expected": {"judge_calls": 3}},
        {"judge_inputs": BOTH[:1]},
        {"judge_inputs": [BOTH[0], {"a": "silver", "b": "gold"}]},
        {"judge_inputs": BOTH, "forgets": True},
        {"judge_prompt_contains": ["second: answer"]},
        {"judge_prompt_lacks": ["second: answer"]},
        {"judge_verdicts": ["yes"]},
        {"judge_verdicts": ["yes"], "outcome": {"judge_evaluations": [{"verdict_label": "no"}]}},
    ],
)
def test_each_difference_is_one_line(data):
    assert len(judged(**data)) == 1


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"reply": "a"}, "a"),
        ({"output": [message("a"), message("b")]}, "a\nb"),
        ({"output": []}, ""),
        ({"raw": response("a")}, "a"),
        ({"status": 200, "body": '{"output": []}'}, ""),
        ({"raise": "refused"}, None),
        ({"error": "reset"}, None),
        ({"status": 503, "body": "busy"}, None),
        ({"http_status": 500}, None),
        ({"status": 200, "body": "<html>"}, None),
        ({"raw": {"choices": []}}, None),
    ],
)
def test_entries(entry, text):
    if text is None:
        with pytest.raises(JudgeError):
            answer(entry)
    else:
        assert answer(entry).joined_text() == text


async def test_calls_that_run_together_get_the_entries_meant_for_them():
    script = ScriptedJudge(
        [{"pair": [0, 1], "reply": "a"}, {"verifier": "safety", "reply": "b"}, {"pair": [0, 1], "reply": "c"}]
    )
    context, judge = Context(models={"judge": script}), Judge(JudgeConfig())
    asked = [await judge.ask(context, "?", purpose=p) for p in ("safety", "0,1", "0,1")]
    assert [a.last_part for a in asked] == ["b", "a", "c"]
    with pytest.raises(AssertionError, match="no reply for call 4"):
        await judge.ask(context, "?", purpose="1,0")
