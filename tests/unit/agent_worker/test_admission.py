from __future__ import annotations

import json

import pytest
from support.pipeline import faulty, mcqa
from support.steps import NOW, SOURCE, read, record

from schemas import codec, headers, trace
from schemas.events import Prompt
from schemas.identity import RolloutRef, task_index_of

PLACE_TASK = "p.prompts-1-42"
PLACE_INDEX = 1 << 40 | 42


async def admitted(bench, value, **options):
    outputs = await bench.admit(value, **options)
    assert {o.topic for o in outputs} == {"p.turns"}
    return [read(o).rollout for o in outputs]


async def test_a_bare_row_is_one_rollout_named_by_its_place(bench):
    data = json.dumps(mcqa()).encode()
    (out,) = await bench.admit(data)
    rollout = read(out).rollout
    assert rollout.ref == RolloutRef("default", PLACE_TASK, PLACE_INDEX, 0)
    assert (rollout.environment, rollout.agent, rollout.source) == ("mcqa", "mcqa_simple_agent", SOURCE)
    assert rollout.row.data == data
    assert (rollout.admitted_ms, rollout.deadline_ms) == (NOW * 1000, NOW * 1000 + 60_000)
    assert out.key == rollout.ref.key
    named = [(headers.RUN, b"default"), (headers.ROLLOUT, rollout.ref.rollout_id.encode())]
    assert out.headers == [*named, (headers.TRACE, trace.started(rollout.ref))]
    assert bench.pressure.count == 1


async def test_a_json_event_says_who_how_often_and_how_long(bench):
    event = {"row": mcqa(), "run_id": "r", "task_id": "t", "repeats": 2, "first_rollout": 3, "attempt": 1, "timeout_s": 5}
    rollouts = await admitted(bench, {**event, "group_size": 8})
    assert [r.ref for r in rollouts] == [RolloutRef("r", "t", task_index_of("t"), i, 1, 8) for i in (3, 4)]
    assert {r.deadline_ms for r in rollouts} == {NOW * 1000 + 5000}


async def test_an_avro_event_names_the_environment_over_the_row(bench):
    row = json.dumps({**mcqa(), "agent_ref": {"name": "nobody"}}).encode()
    (rollout,) = await admitted(bench, codec.encode(Prompt(row=row, task_index=4, environment="mcqa")))
    assert (rollout.environment, rollout.ref.task_index, rollout.row.data) == ("mcqa", 4, row)


async def test_explicit_ids_stay_and_repeats_keep_them_apart(bench):
    (one,) = await admitted(bench, {**mcqa(), "_ng_rollout_id": "mine", "_ng_task_index": 2, "_ng_attempt_index": 1})
    assert one.ref.rollout_id == "mine-a1"
    many = await admitted(bench, {"row": {**mcqa(), "_ng_rollout_id": "ours"}, "repeats": 2})
    assert [r.ref.rollout_id for r in many] == ["ours-0", "ours-1"]


async def test_a_trace_goes_along_and_a_header_that_is_none_stays_behind(bench):
    data = json.dumps(mcqa()).encode()
    (out,) = bench.admission()(record("prompts", data, [("traceparent", b"00-a-b-01"), ("other", b"x")]))
    assert out.headers[2:] == [("traceparent", b"00-a-b-01")]
    (out,) = bench.admission()(record("prompts", data, [("traceparent", b"x" * 10_000_000)]))
    assert out.headers[2:] == [("traceparent", trace.started(read(out).rollout.ref))]


async def test_only_the_runs_own_records_are_taken(bench):
    bench.scope = "mine"
    admission = bench.admission()
    value = json.dumps({"row": mcqa(), "run_id": "theirs"}).encode()
    assert admission(record("prompts", value)) == ()
    assert admission(record("prompts", b"garbage", [("rs-run", b"theirs")])) == ()
    assert len(admission(record("prompts", json.dumps({"row": mcqa(), "run_id": "mine"}).encode()))) == 1


async def test_the_second_dispatch_is_a_duplicate_without_a_row(bench):
    admission = bench.admission()
    prompt = {"row": mcqa(), "run_id": "r", "task_id": "t", "repeats": 2}
    await bench.admit(prompt, admission)
    outputs = await bench.admit({**prompt, "repeats": 3}, admission, offset=50)
    events = [read(o) for o in outputs]
    assert [o.topic for o in outputs] == ["p.failures", "p.failures", "p.turns"]
    assert [(e.outcome, e.ref.rollout_index, e.place.offset, e.row.data) for e in events[:2]] == [
        ("duplicate", 0, 50, b""),
        ("duplicate", 1, 50, b""),
    ]
    assert events[2].rollout.ref.rollout_index == 2
    assert bench.pressure.count == 3


async def test_another_attempt_is_no_duplicate(bench):
    admission = bench.admission()
    prompt = {"row": mcqa(), "task_id": "t"}
    await bench.admit(prompt, admission)
    (out,) = await bench.admit({**prompt, "attempt": 1}, admission)
    assert out.topic == "p.turns"


async def test_the_window_is_bounded_and_can_be_filled_and_forgotten(bench):
    admission = bench.admission(window=2)
    prompts = [{"row": mcqa(), "task_id": str(i)} for i in range(3)]
    for prompt in prompts:
        await bench.admit(prompt, admission)
    assert [(await bench.admit(p, admission))[0].topic for p in reversed(prompts)] == ["p.failures", "p.failures", "p.turns"]
    admission.forget(1)
    assert (await bench.admit(prompts[2], admission))[0].topic == "p.turns"
    fresh = bench.admission()
    fresh.remember(record("prompts", json.dumps(prompts[0]).encode()))
    fresh.remember(record("prompts", b"garbage"))
    assert (await bench.admit(prompts[0], fresh))[0].topic == "p.failures"
    assert (await bench.admit(prompts[0], fresh, partition=0))[0].topic == "p.turns"  # the window is one partition's


async def test_a_cancelled_run_is_not_begun(bench):
    bench.control.cancelled = {"r"}
    outputs = [read(o) for o in await bench.admit({"row": mcqa(), "run_id": "r", "repeats": 2})]
    assert [(e.outcome, e.failure_class, e.ref.rollout_index) for e in outputs] == [
        ("cancelled", "cancelled", i) for i in (0, 1)
    ]


async def test_a_seed_brings_its_state(bench):
    row = {"responses_create_params": {"input": "x"}, "initial_count": 5, "expected_count": 9}
    rollouts = await admitted(bench, {"row": row, "environment": "example_session_state_mgmt", "repeats": 2})
    assert [r.env_state for r in rollouts] == [b'{"counter":5}'] * 2


@pytest.mark.parametrize(
    ("how", "kind", "said"),
    [
        ("refuse", "data", "refused on purpose"),
        ("raise", "infrastructure", "thrown on purpose"),
        ("exit", "infrastructure", "SystemExit"),
        ("cancel", "infrastructure", "CancelledError"),
    ],
)
async def test_a_seed_that_fails_costs_each_of_its_rollouts(bench, how, kind, said):
    outputs = [read(o) for o in await bench.admit({"row": faulty(seed_does=how), "run_id": "r", "repeats": 3})]
    assert [(e.failure_class, e.ref.rollout_index, e.environment) for e in outputs] == [(kind, i, "faulty") for i in range(3)]
    assert all(said in e.message for e in outputs)


async def test_the_seeds_of_a_group_are_awaited_together(bench, monkeypatch):
    monkeypatch.setattr("services.agent_worker.admission._SEED_TIMEOUT_S", 0.2)
    outputs = [read(o) for o in await bench.admit({"row": faulty(seed_does="hang"), "repeats": 200})]
    assert [(e.failure_class, e.ref.rollout_index) for e in outputs] == [("timeout", i) for i in range(200)]


async def test_a_large_row_travels_by_reference_from_the_start(bench):
    row = mcqa(filler="x" * 300_000)
    (rollout,) = await admitted(bench, row)
    assert rollout.row.data == b""
    assert await bench.claims.unpack(rollout.ref, "row", rollout.row) == json.dumps(row).encode()


async def test_a_seed_that_is_too_large_for_a_record_costs_its_rollout(bench):
    (out,) = await bench.admit(faulty(seed_does="blob", size=9_000_000))
    failure = read(out)
    assert (failure.failure_class, failure.retryable) == ("capacity", False)
    assert "environment's state has 9,000" in failure.message


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (mcqa(expected_answer=5), "row.expected_answer"),
        (mcqa(agent_ref={"name": "nobody"}), "unknown agent 'nobody'"),
        ({"row": mcqa(), "environment": "mcqaa"}, "unknown environment 'mcqaa'"),
        ({"row": mcqa(), "agent": "nobody", "task_id": "t"}, "unknown agent"),
    ],
)
async def test_a_refused_prompt_is_a_failure_of_each_rollout_with_its_bytes(bench, value, said):
    (failure,) = [read(o) for o in await bench.admit(value)]
    assert (failure.failure_class, failure.outcome, failure.retryable) == ("data", "failed", False)
    assert said in failure.message
    assert (failure.original.data or failure.row.data) == json.dumps(value).encode()
    assert failure.place == failure.source == SOURCE
    assert failure.ref is not None


async def test_a_refused_prompt_of_many_rollouts_tells_its_row_a_bounded_number_of_times(bench):
    value = {"row": mcqa(agent_ref={"name": "nobody"}, filler="x" * 400_000), "repeats": 5}
    events = [read(o) for o in await bench.admit(value)]
    assert [bool(e.row.data) for e in events] == [True, True, False, False, False]
    assert len({e.ref.rollout_index for e in events}) == 5


async def test_refusing_twice_is_a_duplicate(bench):
    admission = bench.admission()
    value = {"row": mcqa(agent_ref={"name": "nobody"}), "task_id": "t"}
    assert read((await bench.admit(value, admission))[0]).outcome == "failed"
    assert read((await bench.admit(value, admission))[0]).outcome == "duplicate"


@pytest.mark.parametrize("data", [b"", b"garbage", b"[]", b"\xc3\x01" + b"\x00" * 20, b'{"row": 5}'])
async def test_what_is_no_prompt_is_one_failure_with_its_bytes(bench, data):
    (out,) = bench.admission()(record("prompts", data, [("rs-run", b"r" * 1000)]))
    failure = read(out)
    assert (failure.failure_class, failure.ref, failure.original.data) == ("data", None, data)
    assert failure.run_id == "r" * 200
    assert failure.place == SOURCE


async def test_a_key_of_megabytes_does_not_make_the_failure_too_large(bench):
    made = record("prompts", b"x" * (31 << 20))
    object.__setattr__(made, "key", b"k" * (1 << 20)) if hasattr(made, "__slots__") else setattr(made, "key", b"k" * (1 << 20))
    (out,) = bench.admission()(made)
    assert len(out.key) + len(out.value) < 32 << 20
