from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from support.pipeline import faulty, mcqa
from support.steps import NOW, REF, ScriptedPolicy, called, read, record, reply, rollout, said, usage

from schemas import jsontext
from schemas.errors import ModelError, RolloutTimeout
from schemas.events import Payload, ToolCall, Trajectory, Turn
from services.agent_worker.step import MAX_TURNS

ROW = faulty(tools=True)


async def turn(bench, given, *replies):
    """One turn: the policy that was asked, the record that came out, its event."""
    policy = ScriptedPolicy(*replies)
    out = await bench.take(bench.turn(policy=policy), "turns", Turn(given))
    return policy, out, read(out)


def answered(event, *texts):
    """The rollout of a tool-calls event as the tool worker hands it back."""
    outputs = [{"type": "function_call_output", "call_id": f"c{i}", "output": t} for i, t in enumerate(texts)]
    added = b",".join(jsontext.dumps(o) for o in outputs)
    items = b",".join(p for p in (event.rollout.items, added) if p)
    return replace(event.rollout, items=items)


async def test_a_message_ends_the_rollout(bench):
    row = {**mcqa(), "responses_create_params": {"input": "Q?", "model": "theirs", "stream": False, "temperature": 0.5}}
    policy, out, event = await turn(bench, rollout(row, "mcqa"), reply(said("B"), usage=usage(5), model="m"))
    assert policy.requests == [{"input": [{"role": "user", "content": "Q?"}], "model": "policy-model", "temperature": 0.5}]
    assert policy.keys == ["r/7-1/0.0"]
    assert isinstance(event, Trajectory)
    assert (out.topic, out.key) == ("p.trajectories", REF.task_key)
    assert (event.turns, event.finished_ms, event.ref) == (1, NOW * 1000, REF)
    assert json.loads(event.response.data) == reply(said("B"), usage=usage(5), model="m")
    assert event.row.data == jsontext.dumps(row)


async def test_the_calls_of_a_turn_go_to_the_tool_worker_in_order(bench):
    items = [said("let me see"), called("poke", '{"a":', "c1"), called("no_such_tool", "", "c2"), called("poke", "null", "c3")]
    _, out, event = await turn(bench, rollout(ROW), reply(*items))
    assert (out.topic, out.key) == ("p.tool-calls", REF.key)
    assert event.calls == (ToolCall("c1", "poke", '{"a":'), ToolCall("c2", "no_such_tool", ""), ToolCall("c3", "poke", "null"))
    assert json.loads(b"[" + event.rollout.items + b"]") == items
    assert (event.kind, event.rollout.turn, event.rollout.reply) == ("call", 1, b"")


async def test_the_next_turn_sees_all_of_it_and_usage_is_summed(bench):
    _, _, event = await turn(bench, rollout(ROW), reply(called(), usage=usage(5)))
    policy, _, event = await turn(bench, answered(event, "one"), reply(called(), usage=usage(7, cached=None)))
    assert [i.get("type") for i in policy.requests[0]["input"]] == [None, "function_call", "function_call_output"]
    assert policy.keys == ["r/7-1/1.0"]
    _, _, end = await turn(bench, answered(event, "two"), reply(said("done"), usage=None))
    final = json.loads(end.response.data)
    kinds = ["function_call", "function_call_output"] * 2 + ["message"]
    assert [i["type"] for i in final["output"]] == kinds
    assert final["usage"] == usage(12, None) | {"output_tokens": 2, "total_tokens": 14}
    assert end.turns == 3


async def test_usage_that_nobody_reported_stays_null(bench):
    _, _, event = await turn(bench, rollout(ROW), reply(called(), usage=None))
    _, _, end = await turn(bench, answered(event, "x"), reply(said("done"), usage=None))
    assert json.loads(end.response.data)["usage"] is None


async def test_a_limit_of_steps_ends_after_the_tools_with_the_stored_reply(bench):
    _, _, event = await turn(bench, rollout(ROW, "faulty_limited"), reply(called(), usage=usage(1)))
    assert event.rollout.reply == b""
    last = reply(said("thinking"), called(), usage=usage(2), model="m", id="resp_2")
    _, _, event = await turn(bench, answered(event, "x"), last)
    policy, _, end = await turn(bench, answered(event, "y"))
    assert policy.requests == []
    final = json.loads(end.response.data)
    assert (final["id"], final["model"], final["usage"]["input_tokens"]) == ("resp_2", "m", 3)
    assert [i["type"] for i in final["output"]][-3:] == ["message", "function_call", "function_call_output"]


async def test_an_incomplete_reply_ends_the_rollout_and_its_calls_are_not_run(bench):
    cut = reply(called(), status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    _, _, end = await turn(bench, rollout(ROW), cut)
    assert json.loads(end.response.data)["incomplete_details"] == {"reason": "max_output_tokens"}


async def test_turns_of_reasoning_alone_are_capped(bench):
    given, calls = rollout(ROW), 0
    while True:
        thought = {"type": "reasoning", "id": "rs", "summary": []}
        _, out, event = await turn(bench, given, reply(thought))
        calls += 1
        if out.topic != "p.turns":
            break
        given = event.rollout
    assert (calls, out.topic) == (8, "p.trajectories")
    assert len(json.loads(event.response.data)["output"]) == 8


async def test_lone_surrogates_survive_as_escapes(bench):
    _, _, event = await turn(bench, rollout(ROW), reply(said("half \ud83d"), called("poke", '{"x":"\ud83d"}')))
    assert b"half \\ud83d" in event.rollout.items
    assert event.calls[0].arguments == '{"x":"\\ud83d"}'
    policy, _, end = await turn(bench, answered(event, "x"), reply(said("\ud83d"), metadata={"k": "\ud83d"}))
    assert policy.requests[0]["input"][1]["content"][0]["text"] == "half \ud83d"
    assert b'"text":"\\ud83d"' in end.response.data
    assert b'{"k":"\\ud83d"}' in end.response.data


async def test_a_passed_deadline_expires_the_rollout(bench):
    bench.now = NOW + 60
    policy, _, failure = await turn(bench, rollout(ROW))
    assert (failure.outcome, failure.failure_class, policy.requests) == ("expired", "timeout", [])
    assert failure.elapsed_ms == 60_000


async def test_the_call_gets_the_rollouts_deadline_as_loop_time(bench):
    bench.now = NOW + 20
    before = asyncio.get_running_loop().time()
    policy, _, _ = await turn(bench, rollout(ROW), reply(said("x")))
    assert 40 <= policy.deadlines[0] - before < 41
    policy, _, _ = await turn(bench, rollout(ROW, deadline_ms=0), reply(said("x")))
    assert policy.deadlines == [None]


async def test_a_cancelled_run_is_not_asked_for(bench):
    bench.control.cancelled = {"r"}
    policy, _, failure = await turn(bench, rollout(ROW))
    assert (failure.outcome, failure.retryable, policy.requests) == ("cancelled", False, [])


@pytest.mark.parametrize(
    ("error", "kind", "outcome"),
    [(ModelError("HTTP 401", detail="said"), "model", "failed"), (RolloutTimeout("late"), "timeout", "failed")],
)
async def test_a_model_that_fails_is_a_failure_with_what_was_said_before(bench, error, kind, outcome):
    _, _, event = await turn(bench, rollout(ROW), reply(said("first"), called()))
    _, out, failure = await turn(bench, answered(event, "x"), error)
    assert (failure.failure_class, failure.outcome, failure.detail) == (kind, outcome, error.detail)
    assert b"first" in failure.response.data
    assert (out.topic, out.key, failure.stage) == ("p.failures", REF.task_key, "agent")


async def test_the_number_of_turns_is_bounded(bench):
    policy, _, failure = await turn(bench, rollout(ROW, turn=MAX_TURNS))
    assert (failure.failure_class, failure.retryable, policy.requests) == ("capacity", False, [])


async def test_parallel_calls_are_one_turn_with_their_replies_in_order(bench):
    async def late():
        await asyncio.sleep(0)
        return reply(said("0"), usage=usage(1))

    replies = [late, reply(said("1"), usage=usage(2)), reply(said("2"), usage=usage(3), id="last")]
    policy, _, end = await turn(bench, rollout(ROW, "faulty_parallel"), *replies)
    assert policy.keys == [f"r/7-1/0.{i}" for i in range(3)]
    assert [r["input"][0]["content"] for r in policy.requests] == ["path 0", "path 1", "path 2"]
    final = json.loads(end.response.data)
    assert [i["content"][0]["text"] for i in final["output"]] == ["0", "1", "2"]
    assert (final["id"], final["metadata"], final["usage"]["input_tokens"], end.turns) == ("last", {"paths": "3"}, 6, 3)


async def test_one_of_parallel_calls_that_fails_ends_the_others(bench):
    ended = []

    async def endless():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    _, _, failure = await turn(bench, rollout(ROW, "faulty_parallel"), endless, ModelError("500"), endless)
    await asyncio.sleep(0)
    assert (failure.failure_class, failure.message, ended) == ("model", "500", [True, True])


@pytest.mark.parametrize(
    ("wish", "said_of_it"),
    [
        ("no calls", "asked for tools without naming one"),
        ("no requests", "asked for a model call without naming one"),
        ("no model", "a model named 'judge'"),
    ],
)
async def test_an_agent_that_asks_for_nothing_costs_its_rollout(bench, wish, said_of_it):
    row = {"responses_create_params": {"input": wish}}
    _, _, failure = await turn(bench, rollout(row, "faulty_lost"))
    assert failure.failure_class == "data"
    assert said_of_it in failure.message


async def test_an_agent_that_ends_without_a_call_has_a_response_of_its_own(bench):
    _, _, end = await turn(bench, rollout(ROW, "faulty_silent"))
    final = json.loads(end.response.data)
    assert (final["id"], final["output"], final["usage"], end.turns) == ("resp_7-1", [], None, 0)


async def test_the_environment_gets_the_turn_once_on_the_wire(bench):
    first = reply(said("x" * 2000), model="m")
    _, out, event = await turn(bench, rollout(ROW, "faulty_partner"), first)
    assert event.kind == "respond"
    assert json.loads(event.rollout.reply) == {**first, "output": 1}
    assert len(out.value) < 3500


async def test_the_environment_may_move_first(bench):
    policy, _, event = await turn(bench, rollout(ROW, "faulty_opening"))
    assert (event.kind, event.rollout.reply, policy.requests) == ("respond", b"", [])


async def test_the_last_reply_stays_while_the_environment_moves_again(bench):
    frame = json.dumps(reply(model="m")).encode()
    policy, _, event = await turn(bench, rollout(ROW, "faulty_insisting", turn=1, reply=frame))
    assert (event.kind, event.rollout.reply, policy.requests) == ("respond", frame, [])
    _, _, end = await turn(bench, replace(event.rollout, done=True))
    assert json.loads(end.response.data)["model"] == "m"


async def test_a_turn_beyond_a_record_travels_by_reference(bench):
    big = reply(said("x" * 2_000_000), called())
    _, out, event = await turn(bench, rollout(ROW), big)
    assert len(out.value) < 2000
    assert event.rollout.items == b""
    policy, _, end = await turn(bench, answered(event, "y"), reply(said("end")))
    assert len(policy.requests[0]["input"][1]["content"][0]["text"]) == 2_000_000
    response = await bench.claims.unpack(end.ref, "response", end.response)
    assert [i["type"] for i in json.loads(response)["output"]] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]


async def test_a_turn_for_the_environment_beyond_a_record_is_whole(bench):
    _, _, event = await turn(bench, rollout(ROW, "faulty_partner"), reply(said("x" * 1_000_000)))
    assert event.rollout.items == b""
    assert len(json.loads(event.rollout.reply)["output"]) == 1


async def test_arguments_beyond_a_record_cost_the_rollout(bench):
    _, _, failure = await turn(bench, rollout(ROW), reply(called(arguments="x" * 9_000_000)))
    assert (failure.failure_class, failure.retryable) == ("capacity", False)
    assert "arguments of its calls have 9,000,000" in failure.message


async def test_tools_of_a_seed_are_offered_beside_the_rows(bench):
    policy, _, _ = await turn(bench, rollout(ROW, tools=b'[{"type":"function","name":"more"}]'), reply(said("x")))
    assert [t["name"] for t in policy.requests[0]["tools"]] == ["poke", "more"]


async def test_a_record_that_is_no_turn_is_one_failure(bench):
    (out,) = await bench.turn()(record("turns", b"garbage"))
    assert (read(out).failure_class, read(out).original.data) == ("data", b"garbage")
    bench.scope = "mine"
    assert await bench.turn()(record("turns", b"garbage", [("rs-run", b"theirs")])) == ()


async def test_a_claim_that_is_gone_is_an_infrastructure_failure(bench):
    _, _, failure = await turn(bench, replace(rollout(ROW), row=Payload(size=5, crc=5)))
    assert (failure.failure_class, failure.retryable) == ("infrastructure", True)
    assert "was removed" in failure.message
