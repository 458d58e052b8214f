"""The conformance suite can fail: wrong scores, wrong texts and unread keys do not pass."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import DataError, JudgeError, VerifierError
from tests.conformance import agents, cases, running
from tests.conformance.cases import Case
from tests.conformance.comparing import differences
from tests.conformance.forms.form import Outcome
from tests.conformance.forms.scoring import Scoring

WEATHER = {
    "id": "w/1",
    "environment": "example_single_tool_call",
    "note": "",
    "task": {"responses_create_params": {"input": "?"}, "n": 1},
    "response": {"output": []},
    "tools": [
        {"name": "get_weather", "arguments": {"city": "Oslo"}, "output_json": {"city": "Oslo"}, "output_contains": "cold"}
    ],
    "expected": {"reward": 1.0},
}


def case(**changes: Any) -> Case:
    data = {**WEATHER, **changes}
    return Case(data["id"], data["environment"], data)


@pytest.mark.parametrize(
    ("expected", "result"),
    [
        ({}, {"a": 1}),
        ({"a": 1}, {"a": 1.0, "b": 2}),
        ({"a": 1.0}, {"a": 1.0 + 5e-7}),
        ({"a.0.b": 2}, {"a": [{"b": 2}]}),
        ({"a.b": 2}, {"a.b": 2}),
        ({"a": [{"x": 1}]}, {"a": [{"x": 1, "y": 2}]}),
        ({"a": None}, {"a": None}),
        ({"a.0.b": None}, {"a": None}),
        ({"a": 10**400}, {"a": 10**400}),
    ],
)
def test_a_subset_agrees(expected: dict[str, Any], result: dict[str, Any]) -> None:
    assert differences(expected, result) == []


@pytest.mark.parametrize(
    ("expected", "result"),
    [
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"a": "1"}),
        ({"a": 1}, {}),
        ({"a": None}, {}),
        ({"a": 1.0}, {"a": 1.0 + 5e-6}),
        ({"a": [1]}, {"a": [1, 2]}),
        ({"a.1": 1}, {"a": [1]}),
        ({"a": {"b": 1}}, {"a": [1]}),
        ({"a": "x"}, {"a": ["x"]}),
    ],
)
def test_a_difference_is_found(expected: dict[str, Any], result: dict[str, Any]) -> None:
    assert len(differences(expected, result)) == 1


def test_tolerance_is_absolute_and_may_be_given_by_path() -> None:
    assert differences({"a": 1.0}, {"a": 1.1}, 0.2) == []
    assert differences({"a": 1.0, "b": 1.0}, {"a": 1.1, "b": 1.1}, {"a": 0.2}) == ["b: expected 1.0, found 1.1"]


def test_the_example_case_passes() -> None:
    assert running.obstacle(case()) is None
    assert running.run(case()) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"expected": {"reward": 0.0}},
        {"expected": {"reward": 1.0, "n": 2}},
        {"expected": {"error": "invalid_row"}},
        {"expected": {"http_status": 500}},
        {"expected": {"error": "something new"}},
        {"expected": {"_ng_failure_class": "judge_failed"}},
        {"tools": [{"name": "get_weather", "arguments": {"city": "Oslo"}, "output": "x"}]},
        {"tools": [{"name": "get_weather", "arguments": {"city": "Oslo"}, "output_json": {"city": "Rome"}}]},
        {"tools": [{"name": "get_weather", "arguments": {"city": "Oslo"}, "output_pattern": "cold"}]},
        {"tools": [{"name": "get_weather", "arguments": {"city": "Oslo"}, "output_contains": ["cold", "warm"]}]},
        {"tools": [{"name": "get_weather", "arguments": {"city": "Oslo"}, "output_prefix": "city"}]},
        {"tools": [{"name": "get_weather", "arguments": {"city": "Oslo"}, "http_status": 422}]},
        {"task": {"responses_create_params": {}}},
    ],
)
def test_a_wrong_case_fails(changes: dict[str, Any]) -> None:
    assert len(running.run(case(**changes))) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"no_such_key": []},
        {"judge": [{"reply": "x", "delay": 1}]},
        {"tools": [{"name": "x", "arguments": {}, "output_hash": 1}]},
    ],
)
def test_what_no_form_reads_is_skipped_by_name(changes: dict[str, Any]) -> None:
    assert running.obstacle(case(**changes))


def test_a_missing_program_is_named() -> None:
    assert running.obstacle(case(requires=["python3", "no-such-program"])) == "not installed: no-such-program"


@pytest.mark.parametrize(
    ("expected", "outcome", "agrees"),
    [
        ({"error": "invalid_row"}, Outcome({}, DataError("x")), True),
        ({"error": "invalid_row"}, Outcome({}, VerifierError("x")), False),
        ({"http_status": 422}, Outcome({}, DataError("x")), True),
        ({"error": "verifier_exception"}, Outcome({}, VerifierError("x")), True),
        ({"error": "verifier_exception"}, Outcome({"reward": 0.0}), False),
        ({"_ng_failure_class": "judge_failed"}, Outcome({}, JudgeError("x")), True),
        ({"failure_class": "judge_failed"}, Outcome({"reward": 0.0}), False),
        ({"reward": 0.0, "error": "odd"}, Outcome({"reward": 0.0, "error": "odd"}), True),
    ],
)
def test_kinds_of_outcome(expected: dict[str, Any], outcome: Outcome, agrees: bool) -> None:
    found = Scoring().check(case(expected=expected), None, outcome)  # type: ignore[arg-type]
    assert (found == []) is agrees


def test_preferred_and_better_answers_take_the_place_of_a_crash() -> None:
    crash = {"error": "HTTP 500"}
    silent, noted = Outcome({"reward": 0.0}), Outcome({"reward": 0.0, "error": "cannot be read"})
    steps = case(environment="example_multi_step", expected=crash)
    assert Scoring().check(steps, None, noted) == []  # type: ignore[arg-type]
    assert Scoring().check(steps, None, silent) != []  # type: ignore[arg-type]
    assert Scoring().check(case(expected=crash, preferred={"reward": 0.0}), None, silent) == []  # type: ignore[arg-type]


AGENT = {
    "id": "a/1",
    "agent": "simple_agent",
    "responses_create_params": {"input": "Q?"},
    "model": [{"id": "r", "output": [{"type": "message", "role": "assistant", "content": "hi"}]}],
    "expected": {"response": {"id": "r"}, "model_calls": 1, "tool_calls": []},
}


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({}, 0),
        ({"expected": {"model_calls": 2}}, 1),
        ({"expected": {"response": {"id": "other"}}}, 1),
        ({"expected": {"error": "episode fails"}}, 1),
        ({"model": [{"status": 500}]}, 1),
    ],
)
def test_agent_cases_can_fail(changes: dict[str, Any], wrong: int) -> None:
    found = agents.run(Case("a/1", "agents/simple_agent", {**AGENT, **changes}))
    assert len(found) == wrong


def test_without_a_directory_there_is_a_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CONFORMANCE_DIR", raising=False)
    monkeypatch.setattr(cases, "DEFAULT", tmp_path / "nothing")
    assert cases.directory() is None
    assert "CONFORMANCE_DIR" in cases.NOWHERE


def test_a_directory_that_was_asked_for_must_exist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CONFORMANCE_DIR", str(tmp_path / "nothing"))
    with pytest.raises(pytest.UsageError, match="no such directory"):
        cases.directory()


def test_a_line_that_is_no_case_is_named(tmp_path: Path) -> None:
    (tmp_path / "mcqa.jsonl").write_text('{"id": "mcqa/1", "expected": {}}\n{"id"\n', "utf-8")
    with pytest.raises(pytest.UsageError, match=r"mcqa\.jsonl:2"):
        list(cases.load(tmp_path))


@pytest.mark.parametrize("processes", ["0", "2"])
def test_the_run_ends_with_the_table(tmp_path: Path, processes: str) -> None:
    lines = [WEATHER, {**WEATHER, "id": "w/2", "expected": {"reward": 0.5}}, {**WEATHER, "id": "w/3", "moon_phase": []}]
    (tmp_path / "example_single_tool_call.jsonl").write_text("".join(json.dumps(c) + "\n" for c in lines), "utf-8")
    (tmp_path / "unheard_of.jsonl").write_text(json.dumps({"id": "u/1", "expected": {}}) + "\n", "utf-8")
    options = ["-n", processes, "--reruns", "1", "--tb", "native", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "tests/conformance/test_conformance.py"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "CONFORMANCE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    lines_of_table = [" ".join(line.split()) for line in run.stdout.splitlines()]
    assert "environment passed failed skipped" in lines_of_table
    assert "example_single_tool_call 1 1 1 (1 × no form for moon_phase)" in lines_of_table
    assert "unheard_of missing (1 cases)" in lines_of_table
    assert "w/2" in run.stdout
    assert "pluggy" not in run.stdout.partition("= FAILURES =")[2], "frames of pytest around the test's own"
