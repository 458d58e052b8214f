"""Agents that think in several calls: what the cases of the reference do not show."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from environments.agents.agent import AgentConfig, CallModel, Finish, View
from environments.agents.deliberation import NODE_RUNS, Deliberation
from environments.agents.orchestrator import Orchestrator, OrchestratorConfig, subtasks
from environments.agents.parallel_thinking import MAX_PATHS, PERSPECTIVES, ParallelThinking, ParallelThinkingConfig
from environments.agents.plan import read_plan
from environments.agents.playing import Play
from environments.agents.reflection import Reflection, ReflectionConfig
from environments.agents.rewoo import Rewoo, RewooConfig
from environments.environment import Environment
from environments.response import Response
from environments.testing import EnvironmentHarness, ScriptedModel, function_call, message, response
from schemas.errors import DataError

AGENTS = [Orchestrator(), ParallelThinking(), Reflection(), Rewoo()]
ASK = {"role": "user", "content": "How many?"}


def played(agent: Deliberation, *replies: str | Mapping[str, Any], items: Sequence[Mapping[str, Any]] = (ASK,)) -> Play:
    harness = EnvironmentHarness(Environment())
    harness.seed({"responses_create_params": {"input": list(items), "temperature": 0.5, "tools": [{"name": "f"}]}})
    play = Play(agent, harness, {"policy": ScriptedModel(*replies)})
    play.run()
    return play


def asked(play: Play) -> list[str]:
    """The last message of every call."""
    return [r["input"][-1]["content"] for r in play.requests]


@pytest.mark.parametrize("agent", AGENTS)
def test_every_call_has_the_rows_parameters_and_replies_are_kept_whole(agent: Deliberation) -> None:
    thought = {"type": "reasoning", "id": "rs", "summary": []}
    play = played(agent, *[response(thought, function_call("f"), "x <answer>")] * 9)
    assert {r["temperature"] for r in play.requests} == {0.5}
    assert [i["type"] for i in play.items] == ["reasoning", "function_call", "message"] * len(play.requests)


def test_a_sub_task_is_asked_alone_and_the_answers_come_together() -> None:
    play = played(Orchestrator(), "SUBTASK 1: first {x}\ntext\n SUBTASK 02:  second ", "one", "two", "<answer>3</answer>")
    split, first, second, combine = asked(play)
    assert "How many?" in split
    assert "at most 5" in split
    assert "first {x}" in first
    assert "second" in second
    assert "How many?" not in first + second
    assert "first" not in second
    assert all(t in combine for t in ("How many?", "first {x}", "one", "second", "two", "<answer>"))
    assert all(len(r["input"]) == 1 for r in play.requests)


@pytest.mark.parametrize("text", ["", "subtask 1: a", "SUBTASK: a", "SUBTASK one: a", "SUBTASK 1: \nSUBTASK 2:\t"])
def test_without_sub_tasks_the_task_itself_is_solved(text: str) -> None:
    assert "How many?" in asked(played(Orchestrator(), text, "one", "two"))[1]


def test_paths_are_asked_at_once_each_in_its_own_way() -> None:
    step = ParallelThinking().next(View({"input": "How many?"}), ())
    assert isinstance(step.action, CallModel)
    assert len(step.action.requests) == 4
    texts = [r.input[0]["content"] for r in step.action.requests if r.input]
    assert [t.split("\n")[0] for t in texts] == list(PERSPECTIVES)
    two = ParallelThinking(ParallelThinkingConfig(num_parallel_paths=2, perspective_prompts=["upside down"]))
    play = played(two, "a", "b", "c")
    assert asked(play)[0].startswith("upside down")
    assert "upside" not in asked(play)[1]
    assert "a\n\n## Solution 2\nb" in asked(play)[2]


def test_reflection_carries_texts_and_leaves_the_request_for_a_critique_out() -> None:
    items = [{"role": "system", "content": "S"}, ASK]
    play = played(
        Reflection(), response({"type": "reasoning", "id": "rs", "summary": []}, "4?"), "why", "<answer>", items=items
    )
    first, critique, second = (r["input"] for r in play.requests)
    assert first == [ASK]
    assert critique[:2] == [ASK, {"role": "assistant", "content": "4?"}]
    assert critique[2]["role"] == "user"
    assert second == [ASK, {"role": "assistant", "content": "4?"}, {"role": "user", "content": "why"}]


def test_old_output_in_the_input_goes_to_the_front_of_the_output() -> None:
    old = [message("before"), function_call("f")]
    items = [ASK, {"role": "assistant", "content": "plain"}, *old, {"role": "user", "content": "And?"}]
    harness = EnvironmentHarness(Environment())
    harness.seed({"responses_create_params": {"input": items}})
    play = Play(Reflection(), harness, {"policy": ScriptedModel("<answer>1</answer>")})
    final = play.run()
    assert final["output"] == [*old, message("<answer>1</answer>")]
    assert [i["content"] for i in play.requests[0]["input"]] == ["How many?", "plain", "And?"]


def test_results_are_put_into_later_steps_by_their_whole_labels() -> None:
    plan = "".join(f"Plan: why {n} #E{n} = LLM[ask {n}]\n" for n in range(1, 11)) + "Plan: all\n#E11 = LLM[#E1, #E10, #E12]"
    play = played(Rewoo(), plan, *[f"<{n} #E2>" for n in range(1, 12)], "done")
    assert asked(play)[11] == "<1 #E2>, <10 #E2>, #E12"
    assert "#E10 = LLM[ask 10]\n#E10: <10 #E2>" in asked(play)[12]
    assert len(play.requests) == 13


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("Plan: a #E1 = LLM[x]", [("a", "#E1", "x")]),
        ("Plan: a\n  #E1=Google [x\ny]", [("a", "#E1", "x\ny")]),
        ("Plan: a #E1 = LLM[x] #E2 = LLM[y]", [("a #E1 = LLM[x]", "#E2", "y")]),
        ("Plan: a #E1 = LLM[x]\n#E2 = LLM[y]", [("a #E1 = LLM[x]", "#E2", "y")]),
        ("Plan: a #E1 = LLM[x[0]]", [("a", "#E1", "x[0")]),
        ("Plan: a\n\nb #E1 = LLM[x]", []),
        ("Plan:#E1 = LLM[x]", []),
        ("Plan: a #E1 = LLM[]\nPlan: b #E2 = LLM[y]", [("b", "#E2", "y")]),
        ("#E1 = LLM[x]", []),
        ("Plan: a #E1 = LLM[x", []),
        ("Plan: Plan: a #E1 = LLM[Plan: b #E2 = LLM[y]", [("Plan: a #E1 = LLM[Plan: b", "#E2", "y")]),
    ],
)
def test_plans(text: str, steps: list[tuple[str, str, str]]) -> None:
    assert [(s.reason, s.label, s.input) for s in read_plan(text, 9)] == steps


PIECES = st.lists(
    st.sampled_from(["Plan:", " ", "\n", "#E1", "#E", " = ", "LLM", "[", "]", "x", "é", "SUBTASK", " 1:"]), max_size=40
)


@given(PIECES)
def test_any_text_is_read_as_steps_in_order(pieces: list[str]) -> None:
    text = "".join(pieces)
    steps = read_plan(text, 99)
    assert all(s.input and "]" not in s.input and s.label == "#E1" for s in steps)
    assert len(steps) <= text.count("Plan:")
    assert read_plan(text, 1) == steps[:1]
    assert subtasks(text, 1) == subtasks(text, 99)[:1]


HOSTILE = [
    "Plan:",
    "Plan: ",
    "#E1=A[",
    "Plan: #E1 = A[",
    " ",
    "\n",
    "Plan: a\n",
    "SUBTASK",
    "SUBTASK 1:",
    "SUBTASK 1",
    "1",
    "[]",
    "Plan: x #E1 = A[y]",
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_megabyte_is_read_in_time(piece: str) -> None:
    text = "Plan: SUBTASK " + piece * ((1 << 20) // len(piece))
    begun = time.process_time()
    read_plan(text, 23)
    subtasks(text, 5)
    assert time.process_time() - begun < 5


def test_the_number_of_calls_is_bounded() -> None:
    bounds: list[tuple[type[AgentConfig], str]] = [
        (OrchestratorConfig, "max_subtasks"),
        (RewooConfig, "max_steps"),
        (ReflectionConfig, "max_reflections"),
    ]
    for config, field in bounds:
        with pytest.raises(ValidationError):
            config.model_validate({field: NODE_RUNS - 1})
    with pytest.raises(ValidationError):
        ParallelThinkingConfig(num_parallel_paths=MAX_PATHS + 1)
    plan = "Plan: a #E1 = LLM[x]\n" * 500
    assert len(played(Rewoo(), plan, *["y"] * 500).requests) == NODE_RUNS
    assert len(played(Reflection(ReflectionConfig(max_reflections=12)), *["y"] * 500).requests) == NODE_RUNS
    many = Orchestrator(OrchestratorConfig(max_subtasks=23))
    assert len(played(many, "SUBTASK 1: x\n" * 500, *["y"] * 500).requests) == NODE_RUNS


@pytest.mark.parametrize("agent", AGENTS)
def test_the_memory_is_a_number_for_each_reply_and_nothing_is_kept(agent: Deliberation) -> None:
    view = View({"input": "How many?"})
    step = agent.next(view, ())
    assert isinstance(step.action, CallModel)
    replies = [Response(response("SUBTASK 1: a" * 10_000))] * len(step.action.requests)
    after = agent.next(View({"input": "How many?"}, memory=step.memory), replies)
    assert len(json.dumps(after.memory)) < 60
    assert agent.next(View({"input": "How many?"}, memory=step.memory), replies) == after
    assert agent.next(view, ()) == step


def test_the_task_is_the_last_plain_text_of_the_user() -> None:
    parts = {"role": "user", "content": [{"type": "input_text", "text": "in parts"}, {"type": "input_image"}]}
    assert (
        "How many?"
        in asked(played(ParallelThinking(ParallelThinkingConfig(num_parallel_paths=1)), "a", "b", items=[ASK, parts]))[0]
    )
    only = ParallelThinking(ParallelThinkingConfig(num_parallel_paths=1))
    assert asked(played(only, "a", "b", items=[parts]))[0].endswith("in parts")
    with pytest.raises(DataError, match="no user message"):
        Rewoo().next(View({"input": [{"role": "system", "content": "x"}]}), ())


JUNK = st.recursive(st.none() | st.booleans() | st.text(max_size=5), lambda s: st.lists(s, max_size=3), max_leaves=4)
ITEM = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["message", "function_call"]) | JUNK,
        "role": st.sampled_from(["assistant", "user"]) | JUNK,
        "content": JUNK,
    },
)


@given(st.sampled_from(AGENTS), st.lists(ITEM, max_size=3), st.lists(ITEM, max_size=3))
def test_any_reply_leads_to_one_step(
    agent: Deliberation, given_items: list[dict[str, Any]], output: list[dict[str, Any]]
) -> None:
    params = {"input": [*given_items, ASK]}
    first = agent.next(View(params), ())
    assert isinstance(first.action, CallModel)
    step = agent.next(View(params, memory=first.memory), [Response({"output": output})] * len(first.action.requests))
    assert isinstance(step.action, CallModel | Finish)
    assert list(step.append) == output * len(first.action.requests)
