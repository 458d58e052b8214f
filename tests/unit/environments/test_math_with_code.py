"""math_with_code: boxes, numbers, and the tool with everything that a session may do."""

from __future__ import annotations

import json
import math
import re
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import environments.math_with_code as package
from environments.context import Context
from environments.math_with_code.answers import agree, extract
from environments.math_with_code.environment import MathConfig, MathWithCode
from environments.registry import Registry
from environments.response import Response
from environments.testing import EnvironmentHarness, response
from schemas.errors import InfrastructureError, RolloutTimeout, SessionEnded

ROW = {"responses_create_params": {"input": "Compute."}, "expected_result": "5"}
EXAMPLES = Path(package.__file__).parent / "data" / "example.jsonl"
PIECES = st.lists(st.sampled_from(["\\boxed{", "{", "}", "7", "\\", " ", "é", "\ud800"]), max_size=14).map("".join)


def by_counting(text):
    """The last box, brace by brace."""
    start = text.rfind("\\boxed{")
    depth = 0
    for at in range(start + 6, len(text)) if start >= 0 else ():
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[start + 7 : at].strip() or None
    return None


@given(st.lists(PIECES, max_size=4))
def test_the_last_message_with_a_box_decides(texts):
    found = [box for box in map(by_counting, texts) if box]
    assert extract(Response(response(*texts))) == (found[-1] if found else None)


@given(st.recursive(st.none() | st.text() | st.integers() | st.floats(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_any_output_is_read(value):
    extract(Response({"output": value}))
    extract(Response({"output": [{"type": "function_call_output", "output": value}, {"role": "assistant", "content": value}]}))
    extract(Response({"output": [{"type": "function_call_output", "output": json.dumps(value)}]}))


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(-1e-5, 1e-5))
def test_numbers_agree_within_their_tolerance(wanted, off):
    answer = wanted + off * max(1.0, abs(wanted))
    assert agree(repr(answer), repr(wanted)) is (abs(answer - wanted) < 1e-6 * max(1.0, abs(wanted)) or answer == wanted)


@given(PIECES | st.text())
@example("$")
@example("\\(\\)")
@example("\\text{}")
def test_every_text_agrees_with_itself_in_any_wrapping(text):
    assert agree(text, text)
    whole = text.strip()
    if not re.match(r"[$\\]", whole) and not whole.endswith(("$", "}", ")")):
        assert agree(f" \\( {text} \\) ", text)
        assert agree(f"${text}$", text)
        assert agree(f"\\text{{{text}}}", text)


@pytest.mark.parametrize(
    ("answer", "expected", "right"),
    [("1_000", "1000", True), ("1,000", "1000", False), ("50\\%", "50", False), ("\\frac12", "0.5", False), ("inf", "Infinity", False),
     ("-inf", "-inf", True), ("1e3", "1000", True), ("٣", "3", True)],
)  # fmt: skip
def test_what_counts_as_a_number(answer, expected, right):
    assert agree(answer, expected) is right


@pytest.mark.parametrize(
    "text",
    ["\\boxed{" * 142_000, "\\boxed{" + "{" * 1_000_000, "\\boxed{" + "{}" * 500_000 + "}", "\\boxed{" + "1" * 1_000_000 + "}",
     "\\boxed{" + " " * 1_000_000 + "}", "\\boxed{\\text{" + "\\text{" * 150_000 + "}}"],
)  # fmt: skip
def test_a_megabyte_takes_less_than_a_second(text):
    harness = EnvironmentHarness(MathWithCode())
    harness.seed(ROW)
    started = time.process_time()
    harness.verify(response(text, {"type": "function_call_output", "call_id": "1", "output": text}))
    harness.verify(response({"type": "function_call_output", "call_id": "1", "output": "[" * 1_000_000}))
    assert time.process_time() - started < 1


def test_the_tools_box_can_be_left_out():
    printed = {"type": "function_call_output", "call_id": "1", "output": '{"stdout": "\\\\boxed{5}"}'}
    for counts, reward in ((True, 1.0), (False, 0.0)):
        harness = EnvironmentHarness(MathWithCode(MathConfig(tool_output_counts=counts)))
        harness.seed(ROW)
        assert harness.verify(response(printed, "done")).reward == reward


class Sessions:
    """Sessions that answer as they are told, and what they were asked."""

    def __init__(self, *replies):
        self.replies = list(replies)
        self.asked, self.closed = [], []

    async def get(self, rollout, driver, *, journal=(), limits=None):
        self.asked.append((rollout, list(journal)))
        return self

    async def execute(self, code, *, timeout_s):
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def close(self, rollout):
        self.closed.append(rollout)


def playing(*replies):
    pytest.importorskip("pandas")
    sessions = Sessions(*replies)
    harness = EnvironmentHarness(MathWithCode(), context=Context(rollout_id="3-1", session_pool=sessions))
    harness.seed(ROW)
    return harness, sessions


GOOD = {"success": True, "stdout": "", "stderr": "", "error_message": None, "result": "1"}


def test_the_journal_holds_what_was_executed_and_not_what_was_killed():
    harness, sessions = playing(GOOD, RolloutTimeout("late"), SessionEnded("the session ended: signal 9"), GOOD, GOOD)
    texts = [json.loads(harness.call("execute_python", json.dumps({"code": c})).output) for c in "abcd"]
    assert [t["error_message"] for t in texts] == [None, "code timed-out", "the session ended: signal 9", None]
    assert [journal for _, journal in sessions.asked] == [[], ["a"], ["a"], ["a"]]
    assert harness.state.journal == ["a", "d"]
    assert harness.call("end_session").output == '{"success":true}'
    assert sessions.closed == ["3-1"]
    assert harness.state.journal == []
    harness.call("execute_python", '{"code": "e"}')
    assert harness.state.journal == ["e"]


def test_a_broken_sandbox_is_no_answer():
    harness, _ = playing(InfrastructureError("no place"))
    with pytest.raises(InfrastructureError, match="no place"):
        harness.call("execute_python", '{"code": "1"}')


@given(
    st.dictionaries(
        st.sampled_from(["success", "stdout", "stderr", "error_message", "result", "x"]),
        st.integers() | st.text() | st.lists(st.none()),
    )
)
def test_what_a_session_answers_has_the_five_keys_whatever_came_back(reply):
    harness, _ = playing(reply)
    found = json.loads(harness.call("execute_python", '{"code": "1"}').output)
    assert list(found) == ["success", "stdout", "stderr", "error_message", "result"]
    assert isinstance(found["success"], bool)
    assert isinstance(found["stdout"], str)
    assert isinstance(found["stderr"], str)


def test_the_examples_are_answered_by_their_own_results():
    rows = [json.loads(line) for line in EXAMPLES.read_text("utf-8").splitlines()]
    assert len(rows) >= 5
    binding = Registry.load().binding(None, rows[0]["agent_ref"]["name"])
    for row in rows:
        harness = EnvironmentHarness(binding)
        harness.seed(row)
        assert harness.verify(response(f"So it is \\boxed{{{row['expected_result']}}}.")).reward == 1.0
    assert binding.agent.config.max_steps == 3
    assert math.isclose(max(len(r["responses_create_params"]["tools"]) for r in rows), 1)
