"""The forms for steps, pages, code servers, played agents and partners can fail."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance import agents, running
from tests.conformance.cases import Case
from tests.conformance.comparing import differences

CALL = {"name": "submit_answer", "arguments": '{"answer": "7"}'}
STEPS = {
    "id": "s/1",
    "task": {"responses_create_params": {"input": []}, "task_idx": 1, "question": "?", "answer": "7"},
    "response": {"output": []},
    "steps": [{"calls": [CALL], "observations": [{"output": "True"}], "reward": 1.0, "done": True}],
    "expected": {"reward": 1.0},
}
LEAN = {
    "id": "l/1",
    "agent": "proof_refinement_agent",
    "agent_config": {"max_correction_turns": 1},
    "task": {"responses_create_params": {"input": "Go.", "top_p": 0.5}, "header": "h\n", "formal_statement": "t := by\n"},
    "policy": [{"reply": "simp"}],
    "sandbox": [
        {
            "reply": {"process_status": "completed", "stdout": "", "stderr": ""},
            "request": {
                "generated_code": "h\nt := by\nsimp",
                "language": "lean4",
                "timeout": 30.0,
                "max_output_characters": 1000,
            },
        }
    ],
    "expected": {"reward": 1.0, "policy_calls": 1, "policy_params": [{"top_p": 0.5}], "error_feedback_present": False},
}
GYM = {
    "id": "g/1",
    "agent": "gymnasium_agent",
    "row": {"responses_create_params": {"input": "Go."}},
    "model": [{"id": "r", "output": [{"type": "message", "role": "assistant", "content": "hi"}]}],
    "env": [{"body": {"observation": "start"}}, {"body": {"reward": 1.0, "terminated": True}}],
    "expected": {"reward": 1.0, "calls": ["/reset", "model", "/step"], "input": [{"content": "Go."}, {"content": "start"}]},
}


def changed(case: dict[str, Any], change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    made = copy.deepcopy(case)
    change(made)
    return made


def found(case: dict[str, Any], subject: str) -> list[str]:
    made = Case(case["id"], subject, case)
    assert running.obstacle(made) is None
    return running.run(made)


@pytest.mark.parametrize(("good", "subject"), [(STEPS, "aviary_gsm8k"), (LEAN, "math_formal_lean")])
def test_the_cases_pass(good: dict[str, Any], subject: str) -> None:
    assert found(good, subject) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["steps"][0].update(reward=0.0),
        lambda c: c["steps"][0].update(done=False),
        lambda c: c["steps"][0].update(observations=[]),
        lambda c: c["steps"][0].update(observations=[{"output": "False"}]),
        lambda c: c.update(steps=[{"calls": [CALL], "error": "step_exception"}]),
        lambda c: c.update(steps=[]),
    ],
)
def test_wrong_steps_fail(change: Callable[[dict[str, Any]], Any]) -> None:
    assert found(changed(STEPS, change), "aviary_gsm8k")


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["sandbox"][0]["request"].update(timeout=1.0),
        lambda c: c["sandbox"].append(c["sandbox"][0]),
        lambda c: c["sandbox"].clear(),
        lambda c: c["expected"].update(policy_calls=2),
        lambda c: c["expected"].update(policy_params=[{"top_p": None}]),
        lambda c: c["expected"].update(error_feedback_present=True),
        lambda c: c["expected"].update(total_turns=2),
    ],
)
def test_wrong_requests_fail(change: Callable[[dict[str, Any]], Any]) -> None:
    assert found(changed(LEAN, change), "math_formal_lean")


def test_a_sandbox_of_another_shape_has_no_form() -> None:
    assert running.obstacle(Case("x", "math_formal_lean", {**LEAN, "sandbox": [{"files": {}}]})) == "no form for sandbox"


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda c: None, 0),
        (lambda c: c["expected"].update(calls=["/reset", "model", "/step", "/close"]), 1),
        (lambda c: c["expected"].update(reward=0.0), 1),
        (lambda c: c["expected"].update(input=[{"content": "Go."}]), 1),
        (lambda c: c.update(model=[{"status": 500}]), 3),
    ],
)
def test_partners_of_agents_can_fail(change: Callable[[dict[str, Any]], Any], wrong: int) -> None:
    assert len(agents.run(Case("g/1", "agents/gymnasium_agent", changed(GYM, change)))) == wrong


@pytest.mark.parametrize(
    ("expected", "result", "agree"),
    [
        ({"a_present": True}, {"a": "x"}, True),
        ({"a_present": True}, {"a": ""}, False),
        ({"a_present": False}, {"a": None}, True),
        ({"a_present": False}, {"a": "x"}, False),
        ({"a_present": False}, {"a_present": True, "a": None}, False),
        ({"a_prefix": "ab"}, {"a": "abc"}, True),
        ({"a_prefix": "ab"}, {"a": "xab"}, False),
        ({"a_prefix": "ab"}, {}, False),
        ({"a_prefix": "ab"}, {"a": 5}, False),
    ],
)
def test_statements_about_texts(expected: dict[str, Any], result: dict[str, Any], agree: bool) -> None:
    assert (differences(expected, result) == []) is agree
