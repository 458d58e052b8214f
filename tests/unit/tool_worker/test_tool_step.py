from __future__ import annotations

import asyncio
import gc
import json
import sys
from dataclasses import replace

import pytest
from support.pipeline import faulty, until
from support.steps import NOW, read, record, reply, rollout, said

from schemas.events import ToolCall, ToolCalls

COUNTER = {"responses_create_params": {"input": "x"}, "initial_count": 2, "expected_count": 9}


async def run(bench, given, *calls, kind="call"):
    return read(await bench.take(bench.tool(), "tool-calls", ToolCalls(given, kind, calls)))


def call(arguments="{}", name="poke", call_id="c"):
    return ToolCall(call_id, name, arguments)


def outputs(event):
    return [(i["call_id"], i["output"]) for i in json.loads(b"[" + event.rollout.items + b"]") if "output" in i]


async def test_calls_run_in_order_and_the_state_goes_along(bench):
    given = rollout(COUNTER, "example_session_state_mgmt", items=b'{"before":1}', env_state=b'{"counter":2}', turn=1)
    calls = [
        call('{"count":4}', "increment_counter", "a"),
        call("", "get_counter_value", "b"),
        call("{}", "get_counter_value", "c"),
    ]
    event = await run(bench, given, *calls)
    assert [c for c, _ in outputs(event)] == ["a", "b", "c"]
    assert outputs(event)[0][1] == '{"success":true}'
    assert outputs(event)[1][1].startswith('{"error": "Invalid tool call arguments: JSONDecodeError')
    assert outputs(event)[2][1] == '{"count":6}'
    assert json.loads(b"[" + event.rollout.items + b"]")[0] == {"before": 1}
    assert event.rollout.env_state == b'{"counter":6}'


async def test_unknown_tools_and_wrong_arguments_become_text(bench):
    given = rollout(COUNTER, "example_session_state_mgmt")
    event = await run(
        bench, given, call(name="verify"), call('{"count":"x"}', "increment_counter"), call("null", "increment_counter")
    )
    (_, unknown), (_, wrong), (_, none) = outputs(event)
    assert unknown == '{"detail":"Not Found"}'
    assert json.loads(wrong)["detail"][0]["loc"] == ["body", "count"]
    assert json.loads(none)["detail"][0] == {"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}


async def test_a_tool_that_returns_nan_says_null(bench):
    event = await run(bench, rollout(faulty(tool_does="nan")), call())
    assert outputs(event) == [("c", "null")]


@pytest.mark.parametrize("how", ["raise", "exit", "cancel"])
async def test_a_tool_that_raises_costs_its_rollout(bench, how):
    failure = await run(bench, rollout(faulty(tool_does=how)), call())
    assert (failure.failure_class, failure.outcome, failure.stage) == ("tool", "failed", "tool")
    assert {"raise": "thrown on purpose", "exit": "SystemExit", "cancel": "CancelledError"}[how] in failure.message


@pytest.mark.parametrize("how", ["hang", "forever"])
async def test_a_tool_that_never_returns_is_a_timeout_and_is_gone(bench, how):
    bench.timeout_s = 0.3
    running = asyncio.ensure_future(run(bench, rollout(faulty(tool_does=how)), call()))
    while not running.done():
        gc.collect()  # asyncio keeps no hold on a task that only waits for something of its own
        await asyncio.sleep(0.02)
    failure = running.result()
    assert (failure.failure_class, failure.retryable) == ("timeout", True)
    assert "did not return in time" in failure.message
    event = await run(bench, rollout(faulty()), call())  # the worker goes on
    assert outputs(event) == [("c", '{"calls":1}')]
    await until(
        lambda: not bench.offload.held_up and not any(getattr(h, "_outstanding", 0) for h in bench.offload._ready()),
        "all is let go",
        5,
    )


async def test_the_rollouts_own_deadline_is_kept(bench):
    bench.now, bench.timeout_s = NOW + 59.8, 40
    async with asyncio.timeout(10):
        failure = await run(bench, rollout(faulty(tool_does="hang")), call())
    assert failure.failure_class == "timeout"
    bench.now = NOW + 60
    assert (await run(bench, rollout(faulty()), call())).outcome == "expired"
    bench.control.cancelled = {"r"}
    assert (await run(bench, rollout(faulty()), call())).outcome == "cancelled"


async def test_an_environment_may_tell_the_model_what_its_tool_raised(bench):
    environment = bench.registry.binding("faulty", None).environment
    environment.tool_errors = "tell_model"
    event = await run(bench, rollout(faulty(tool_does="raise")), call())
    assert outputs(event) == [("c", json.dumps("ValueError('thrown on purpose')"))]


async def test_the_environment_answers_the_last_turn(bench):
    row = faulty("faulty_partner", moves=2)
    last = reply(said("x" * 12), model="m")
    given = rollout(
        row,
        "faulty_partner",
        items=json.dumps([said("before"), said("x" * 12)]).encode()[1:-1],
        reply=json.dumps({**last, "output": 1}).encode(),
    )
    event = await run(bench, given, kind="respond")
    assert json.loads(b"[" + event.rollout.items + b"]")[-1]["content"].startswith("heard 12 characters")
    assert not event.rollout.done
    assert json.loads(event.rollout.reply) == {k: v for k, v in last.items() if k != "output"}
    event = await run(bench, replace(given, env_state=event.rollout.env_state), kind="respond")
    assert event.rollout.done
    assert event.rollout.items == given.items


@pytest.mark.parametrize(
    "kept", [b"", json.dumps(reply(said("x" * 7))).encode(), json.dumps({**reply(), "output": 0}).encode()]
)
async def test_the_environment_answers_a_whole_reply_or_none(bench, kept):
    given = rollout(faulty("faulty_partner", moves=2), "faulty_partner", items=b'{"a":1}', reply=kept)
    event = await run(bench, given, kind="respond")
    heard = 7 if b"xxx" in kept else 0
    assert json.loads(b"[" + event.rollout.items + b"]")[1]["content"].startswith(f"heard {heard} characters")


async def test_a_seed_on_the_tool_worker_begins_the_rollout(bench):
    event = await run(bench, rollout(COUNTER, "example_session_state_mgmt"), kind="seed")
    assert (event.rollout.env_state, event.rollout.turn) == (b'{"counter":2}', 0)
    failure = await run(bench, rollout(faulty(seed_does="raise")), kind="seed")
    assert failure.failure_class == "infrastructure"


async def test_an_output_beyond_a_record_travels_by_reference(bench):
    given = rollout(faulty(tool_does="large", size=9_000_000), items=b'{"a":1}')
    event = await run(bench, given, call())
    assert event.rollout.items == b""
    items = await bench.claims.fetch(event.rollout.ref, 0, event.rollout.settled[0])
    assert len(json.loads(b"[" + items + b"]")[1]["output"]) == 9_000_000


async def test_a_state_beyond_a_record_costs_the_rollout(bench):
    given = rollout(faulty(seed_does="blob", size=9_000_000))
    failure = await run(bench, given, kind="seed")
    assert (failure.failure_class, failure.retryable) == ("capacity", False)


async def test_a_state_with_a_lone_surrogate_goes_along(bench):
    event = await run(bench, rollout(faulty(), env_state=b'{"calls":1,"blob":"half \\ud83d"}'), call())
    assert event.rollout.env_state == b'{"calls":2,"moves":0,"closed":0,"blob":"half \\ud83d"}'


async def test_a_state_of_another_version_is_named(bench):
    failure = await run(bench, rollout(faulty(), env_state=b'{"calls":"many"}'), call())
    assert failure.failure_class == "data"
    assert "state of Faulty cannot be read" in failure.message


async def test_a_record_that_is_no_tool_call_is_one_failure(bench):
    (out,) = await bench.tool()(record("tool-calls", b"garbage"))
    assert (read(out).failure_class, read(out).original.data, read(out).stage) == ("data", b"garbage", "tool")
    bench.scope = "mine"
    assert await bench.tool()(record("tool-calls", b"garbage", [("rs-run", b"theirs")])) == ()


async def test_the_interpreter_is_shared_more_finely_only_while_code_computes(bench):
    usual = sys.getswitchinterval()
    running = asyncio.ensure_future(run(bench, rollout(faulty(tool_does="compute", seconds=0.6)), call()))
    await until(lambda: sys.getswitchinterval() < usual, "the thread counts as held up")
    await running
    await until(lambda: sys.getswitchinterval() == usual, "the thread has come back")
