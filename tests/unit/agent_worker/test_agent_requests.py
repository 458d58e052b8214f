"""What an agent may ask for beside calls and tools: to be told of failures, to close the environment, to add to the line."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from support.faulty.environment import CLOSED
from support.pipeline import faulty
from support.steps import ScriptedPolicy, read, record, reply, rollout, said

from environments.agents.agent import ModelRequest
from environments.tools import with_tools
from schemas import codec, headers
from schemas.errors import ModelError, RolloutTimeout
from schemas.events import ToolCall, ToolCalls, Trajectory, Turn
from services.runtime.claims import claim_in_name


def careful(**fields):
    row = faulty("faulty_careful", **fields)
    row["responses_create_params"] = {"input": "Go.", "top_p": 0.5, "temperature": 0.1}
    return row


async def turn(bench, given, *replies):
    policy = ScriptedPolicy(*replies)
    return policy, read(await bench.take(bench.turn(policy=policy), "turns", Turn(given)))


async def closed(bench, event):
    assert event.kind == "close"
    return read(await bench.take(bench.tool(), "tool-calls", event)).rollout


async def test_a_failed_call_is_told_and_counted_and_the_next_one_has_a_key_of_its_own(bench):
    given = rollout(careful(), "faulty_careful")
    first, event = await turn(bench, given, ModelError("503"))
    assert isinstance(event, Turn)
    assert (event.rollout.turn, event.rollout.items) == (1, b"")
    second, event = await turn(bench, event.rollout, reply(said("hi")))
    assert first.keys + second.keys == ["r/7-1/0.0", "r/7-1/1.0"]
    assert second.requests == [
        {"input": [{"role": "user", "content": "Go."}], "model": "policy-model", "top_p": 0.5, "user": "u"}
    ]
    assert event.kind == "close"


async def test_a_call_that_was_not_answered_in_time_is_told_unless_it_was_the_rollouts_own_time(bench):
    given = rollout(careful(), "faulty_careful")
    _, event = await turn(bench, given, RolloutTimeout("no answer"))
    assert isinstance(event, Turn)
    bench.now += 59.99

    async def late():
        bench.now += 1
        return RolloutTimeout("no answer")

    failure = read(await bench.take(bench.turn(late), "turns", Turn(given)))
    assert (failure.failure_class, failure.message) == ("timeout", "no answer")


@pytest.mark.parametrize(("left_s", "bound_s"), [(60.0, 7.0), (2.0, 2.0)])
async def test_a_call_is_bounded_by_itself_and_by_the_rollout(bench, left_s, bound_s):
    bench.now += 60.0 - left_s
    begun = asyncio.get_running_loop().time()
    policy, _ = await turn(bench, rollout(careful(), "faulty_careful"), reply(said("hi")))
    (deadline,) = policy.deadlines
    assert begun + bound_s <= deadline + 0.01
    assert deadline <= asyncio.get_running_loop().time() + bound_s


async def test_closing_comes_back_to_the_agent_whose_fields_reach_the_line(bench):
    _, event = await turn(bench, rollout(careful(n=3), "faulty_careful", env_state=b'{"calls":2}'), reply(said("hi")))
    after = await closed(bench, event)
    assert json.loads(after.env_state)["closed"] == 1
    _, end = await turn(bench, after)
    assert isinstance(end, Trajectory)
    line = json.loads((await bench.take(bench.verify(), "trajectories", end)).value)
    assert line["responses_create_params"] == {"input": "as sent"}
    assert (line["n"], line["tries"], line["reward"], line["state"]["closed"]) == (3, 1, 1.0, 1)
    assert [i["content"][0]["text"] for i in line["response"]["output"]] == ["hi"]
    assert end.row.data == rollout(careful(n=3)).row.data


async def test_fields_too_large_for_a_record_go_by_reference(bench):
    state = json.dumps({"blob": "b" * 900_000}).encode()
    _, event = await turn(bench, rollout(careful(), "faulty_careful", env_state=state), reply(said("hi")))
    _, end = await turn(bench, event.rollout)
    assert end.result.size > 900_000
    out = await bench.take(bench.verify(), "trajectories", end)
    name = dict(out.headers)[headers.CLAIM].decode()
    line = json.loads(await bench.claims.get(name, claim_in_name(name)))
    assert len(line["state"]["blob"]) == 900_000


async def test_the_failure_that_an_agent_raises_is_the_rollouts(bench):
    _, event = await turn(bench, rollout(careful(), "faulty_careful", turn=1), ModelError("503"))
    after = await closed(bench, event)
    out = await bench.take(bench.turn(), "turns", Turn(after))
    failure = read(out)
    assert (failure.failure_class, failure.message) == ("model", "asked twice: 503")


@pytest.mark.parametrize("how", ["raise", "refuse"])
async def test_a_close_that_fails_changes_nothing(bench, how):
    given = rollout(careful(close_does=how), "faulty_careful", env_state=b'{"calls":2}', done=True, items=b'{"a":1}')
    after = await closed(bench, ToolCalls(given, "close"))
    assert json.loads(after.env_state)["calls"] == 2
    assert (after.done, after.items) == (True, b'{"a":1}')


async def test_an_environment_is_closed_when_its_tool_fails(bench):
    CLOSED.clear()
    row = faulty(tools=True, tool_does="raise", close_does="raise")
    event = ToolCalls(rollout(row), "call", (ToolCall("c", "poke", "{}"),))
    (out,) = await bench.tool()(record("tool-calls", codec.encode(event)))
    assert read(out).failure_class == "tool"
    assert CLOSED == ["7-1"]


async def test_an_agent_that_does_not_ask_is_not_told(bench):
    policy = ScriptedPolicy(ModelError("503"))
    (out,) = await bench.turn(policy=policy)(record("turns", codec.encode(Turn(rollout(faulty(tools=True))))))
    assert read(out).failure_class == "model"


def test_parameters_of_the_row_that_are_kept():
    row = {"input": "x", "temperature": 1, "top_p": 0.5}
    assert ModelRequest().params_over(row) == row
    assert ModelRequest(keep=frozenset({"top_p", "model"}), params={"top_p": 1}).params_over(row) == {"top_p": 1}
    assert ModelRequest(keep=frozenset()).params_over(row) == {}


def test_a_tool_of_the_environment_takes_the_place_of_the_rows():
    params = {"input": "x", "tools": [{"name": "a", "n": 1}, {"name": "b"}]}
    assert with_tools(params, ())["tools"] is params["tools"]
    assert with_tools(params, [{"name": "a", "n": 2}, {"name": "c"}])["tools"] == [
        {"name": "b"},
        {"name": "a", "n": 2},
        {"name": "c"},
    ]
    assert with_tools({"input": "x", "tools": None}, [{"name": "a"}])["tools"] == [{"name": "a"}]


async def test_the_turn_after_a_close_still_has_the_last_reply(bench):
    _, event = await turn(bench, rollout(careful(), "faulty_careful"), reply(said("hi"), id="resp_9"))
    _, end = await turn(bench, replace(await closed(bench, event), done=True))
    assert json.loads(end.response.data)["id"] == "resp_9"
