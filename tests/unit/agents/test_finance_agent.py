"""The loop that ends by a tool: what the cases of the reference do not show."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from environments.agents.agent import CallModel, CallTools, Finish, View
from environments.agents.finance_agent import FinanceAgent, FinanceConfig
from environments.agents.playing import Play
from environments.environment import Context, Environment
from environments.response import Response
from environments.testing import EnvironmentHarness, ScriptedModel, function_call, response
from environments.tools import Text
from schemas.errors import ModelError, RolloutTimeout
from services.models.reply import overflow_body

REQUIRED = {"no_tool_call_nudge": "Go on.", "max_time_seconds": None, "abort_on_tool_error_types": ()}
DONE = response(function_call("submit_final_result", call_id="end"))


class Tools(Environment):
    """Answers with what the tool is called by."""

    def call_unknown_tool(self, name: str, arguments: Any, task: Any, state: Any, context: Context) -> Text:
        return Text(arguments if isinstance(arguments, str) else "ok")


def played(*replies: Any, ticks: float = 0.0, **config: Any) -> tuple[Play, dict[str, Any]]:
    harness = EnvironmentHarness(Tools())
    harness.seed({"responses_create_params": {"input": "Q?"}})
    agent = FinanceAgent(FinanceConfig(**{**REQUIRED, **config}))
    play = Play(agent, harness, {"policy": ScriptedModel(*replies)}, itertools.count(1000.0, ticks).__next__)
    return play, play.run()


def outputs(final: Mapping[str, Any]) -> list[Any]:
    return [i["output"] for i in final["output"] if i["type"] == "function_call_output"]


def test_the_number_of_steps_is_bounded() -> None:
    play, final = played(*["hm"] * 3, max_steps=3)
    assert final["metadata"] == {"stop_reason": "max_turns", "steps": "3"}
    assert len(play.requests) == 3


def test_a_reply_that_only_thinks_is_not_nudged() -> None:
    play, _ = played(response({"type": "reasoning", "id": "rs", "summary": []}), DONE)
    assert [i["type"] for i in play.requests[1]["input"][1:]] == ["reasoning"]


def test_time_is_counted_from_the_first_step() -> None:
    _, final = played(*["hm"] * 9, ticks=10.0, max_time_seconds=15)
    assert final["metadata"]["stop_reason"] == "max_time"
    assert played("never", ticks=10.0, max_time_seconds=0)[1]["id"] == "error"


def test_a_model_that_does_not_answer_in_time_ends_with_what_there_is() -> None:
    _, final = played("hm", RolloutTimeout("late"))
    assert final["metadata"] == {"stop_reason": "error", "steps": "2"}
    assert len(final["output"]) == 2


def test_calls_go_together_when_nothing_can_come_between() -> None:
    agent = FinanceAgent(FinanceConfig(**REQUIRED))
    calls = [function_call(n, a, call_id=n) for n, a in [("a", "{}"), ("b", "1"), ("c", "{"), ("d", "{}")]]
    step = agent.next(View({"input": "Q?"}), [Response(response(*calls))])
    assert isinstance(step.action, CallTools)
    assert [c.name for c in step.action.calls] == ["a", "b"]
    _play, final = played(response(*calls), DONE)
    assert [o[:7] for o in outputs(final)] == ["ok", "ok", '{"error', "ok", "ok"]


@pytest.mark.parametrize("where", ["beside", "in results", "in results as text"])
def test_listed_errors_of_tools_end_the_rollout(where: str) -> None:
    error = {"error": "Gone: no such filing"}
    body = {"beside": error, "in results": {"results": error}, "in results as text": {"results": json.dumps(error)}}[where]
    calls = response(function_call("a", json.dumps(json.dumps(body)), call_id="a"), function_call("b", call_id="b"))
    _, final = played(calls, abort_on_tool_error_types=["Gone"])
    assert final["metadata"] == {"stop_reason": "error", "steps": "1"}
    assert len(outputs(final)) == 1
    assert played(calls, DONE, abort_on_tool_error_types=["Go"])[1]["metadata"]["stop_reason"] == "done_tool"


def test_a_done_tool_ends_even_with_arguments_that_cannot_be_read() -> None:
    _, final = played(response(function_call("submit_final_result", "{")), abort_on_tool_error_types=["X"])
    assert final["metadata"]["stop_reason"] == "done_tool"
    assert "JSONDecodeError" in outputs(final)[0]


OVERFLOWS = [
    response(**{k: v for k, v in overflow_body(b"{}", "m", "k").items() if k != "output"}),
    ModelError("the context length is 8"),
]


@pytest.mark.parametrize("overflow", OVERFLOWS)
def test_the_oldest_exchange_is_left_out_when_the_conversation_is_too_long(overflow: Any) -> None:
    turn = response(function_call("a", call_id="a"), function_call("b", call_id="b"))
    play, final = played(turn, "hm", overflow, DONE, truncate_on_overflow=True)
    assert next(i.get("content") for i in play.requests[-1]["input"]) == "Q?"
    assert [i["type"] for i in play.requests[-1]["input"]] == ["message"] * 3
    assert final["metadata"] == {"stop_reason": "done_tool", "steps": "4"}
    assert len(final["output"]) == 8
    assert played(turn, overflow, truncate_on_overflow=True)[1]["metadata"]["stop_reason"] == "error"  # nothing would remain
    assert played(turn, "hm", overflow)[1]["metadata"]["stop_reason"] == "error"


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_three_settings_have_no_default(name: str) -> None:
    with pytest.raises(ValidationError):
        FinanceConfig.model_validate({k: v for k, v in REQUIRED.items() if k != name})


JUNK = st.none() | st.text(max_size=4) | st.lists(st.none(), max_size=1)
ITEM = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["message", "function_call", "reasoning"]) | JUNK,
        "role": st.sampled_from(["assistant", "user"]) | JUNK,
        "name": st.just("submit_final_result") | JUNK,
        "arguments": st.sampled_from(["{}", "{", "[" * 9]) | JUNK,
    },
)


@given(st.lists(ITEM, max_size=4), st.sampled_from([(), ("X",)]))
def test_any_reply_leads_to_one_step(items: list[dict[str, Any]], kinds: tuple[str, ...]) -> None:
    agent = FinanceAgent(FinanceConfig(**{**REQUIRED, "abort_on_tool_error_types": kinds}))
    step = agent.next(View({"input": "Q?"}, turn=1), [Response({"output": items})])
    assert isinstance(step.action, CallModel | CallTools | Finish)
    assert list(step.append)[: len(items)] == items
    assert not isinstance(step.action, CallTools) or step.action.calls
