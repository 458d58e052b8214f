"""The tool-calling loop: what the cases of the reference do not show."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from environments.agents.agent import CallModel, CallTools, Finish, View
from environments.agents.playing import MAX_STEPS, Play, play
from environments.agents.simple_agent import MAX_IDLE_TURNS, SimpleAgent, SimpleAgentConfig
from environments.agents.single_call import SingleCall
from environments.environment import Context, Environment
from environments.response import Response
from environments.testing import EnvironmentHarness, ScriptedModel, function_call, response

THINKING = {"type": "reasoning", "id": "rs_1", "summary": []}


class Echo(Environment):
    def call_unknown_tool(self, name: str, arguments: Any, task: Any, state: Any, context: Context) -> Any:
        return [name, arguments]


@pytest.fixture
def harness() -> EnvironmentHarness:
    made = EnvironmentHarness(Echo())
    made.seed({"responses_create_params": {"input": [{"role": "user", "content": "Q?"}], "temperature": 0.5}})
    return made


def test_every_call_sends_the_rows_parameters_and_everything_so_far(harness: EnvironmentHarness) -> None:
    played = Play(
        SimpleAgent(), harness, {"policy": ScriptedModel(response(function_call("f", "[1]")), response(THINKING), "done")}
    )
    final = played.run()
    assert [len(r["input"]) for r in played.requests] == [1, 3, 4]
    assert {r["temperature"] for r in played.requests} == {0.5}
    assert final["output"][1] == {"type": "function_call_output", "call_id": "call_1", "output": '["f",[1]]'}


def test_a_model_that_only_thinks_is_not_asked_for_ever(harness: EnvironmentHarness) -> None:
    model = ScriptedModel(*[response(THINKING)] * MAX_STEPS)
    final = Play(SimpleAgent(), harness, {"policy": model}).run()
    assert len(model.requests) == len(final["output"]) == MAX_IDLE_TURNS


def test_a_call_between_thoughts_starts_the_count_again(harness: EnvironmentHarness) -> None:
    thoughts = [response(THINKING)] * (MAX_IDLE_TURNS - 1)
    model = ScriptedModel(*thoughts, response(function_call("f")), *thoughts, "done")
    final = Play(SimpleAgent(), harness, {"policy": model}).run()
    assert final["output"][-1]["role"] == "assistant"


def test_calls_of_an_incomplete_reply_are_not_run(harness: EnvironmentHarness) -> None:
    final = play(SimpleAgent(), harness, response(function_call("f"), incomplete_details={"reason": "content_filter"}))
    assert [i["type"] for i in final["output"]] == ["function_call"]
    assert final["incomplete_details"] == {"reason": "content_filter"}


@pytest.mark.parametrize("details", [{}, {"reason": None}, "odd", ["odd"]])
def test_incomplete_details_of_any_shape_end_the_rollout(harness: EnvironmentHarness, details: object) -> None:
    final = play(SimpleAgent(), harness, response(function_call("f"), incomplete_details=details))
    assert len(final["output"]) == 1


def test_an_item_without_a_type_is_a_message_and_a_refusal_ends_the_rollout(harness: EnvironmentHarness) -> None:
    assert play(SimpleAgent(), harness, response({"role": "assistant", "content": []}))["output"]
    refusal = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    assert play(SimpleAgent(), harness, response(refusal))["output"] == [refusal]


@pytest.mark.parametrize("config", [{"max_steps": "many"}, {"max_step": 1}, {"max_steps": -1}])
def test_settings_that_do_not_fit_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SimpleAgentConfig.model_validate(config)


def test_single_call_ends_after_one_call_whatever_it_says(harness: EnvironmentHarness) -> None:
    body = response(THINKING, function_call("f"), "text")
    assert play(SingleCall(), harness, body)["output"] == body["output"]


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda s: st.lists(s, max_size=3), max_leaves=5
)
KINDS = st.sampled_from(["message", "function_call", "reasoning", "computer_call"]) | JUNK
ITEM = st.fixed_dictionaries(
    {},
    optional={
        "type": KINDS,
        "role": st.sampled_from(["assistant", "user"]) | JUNK,
        "content": JUNK,
        "name": JUNK,
        "arguments": JUNK,
        "call_id": JUNK,
    },
)


@given(items=st.lists(ITEM, max_size=4), turn=st.integers(1, 9), limit=st.none() | st.integers(0, 9))
def test_any_reply_leads_to_one_step_and_the_same_again(items: list[dict[str, Any]], turn: int, limit: int | None) -> None:
    agent = SimpleAgent(SimpleAgentConfig(max_steps=limit))
    view, replies = View({"input": "Q?"}, turn=turn), [Response({"output": items})]
    step = agent.next(view, replies)
    assert isinstance(step.action, CallModel | CallTools | Finish)
    assert list(step.append) == items
    assert agent.next(view, replies) == step
    if isinstance(step.action, CallTools):
        assert all(isinstance(v, str) for c in step.action.calls for v in (c.call_id, c.name, c.arguments))
