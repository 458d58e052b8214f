"""What is too large for a record, what operators say, how a slow stage slows admission, and the other delivery."""

from __future__ import annotations

import json

import pytest
from support.pipeline import Bounds, faulty, mcqa, running, until

from rollstream.scripted import Latency, Options, ScriptedModel
from schemas import headers
from schemas.topics import SCORED, TRAJECTORIES, TURNS
from services.runtime.claims import claim_in_name

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("url", ["", "memory://rollstream-claims"])
async def test_rows_turns_and_trajectories_beyond_a_record_go_through(kafka, topics, tmp_path, url):
    """A 1.5 MB row, 2 MB of words, a tool's 9 MB, on a directory and on a store that is none; the line is in the file."""
    big = faulty(tools=True, tool_does="large", size=9_000_000)
    prompts = [{"row": mcqa(filler="x" * 1_500_000), "run_id": "r"}, {"row": big, "run_id": "r"}]
    stages = ("agent", "tool", "verifier", "sink")
    options = Options(pad_bytes=2_000_000)
    async with (
        ScriptedModel(options) as model,
        running(kafka, topics, tmp_path, model, stages=stages, scope="r", claims_url=url) as pipe,
    ):
        await pipe.send(*prompts)
        ended = await pipe.ended(2)
        assert ended.failures == []
        found = [dict(r.headers)[headers.CLAIM].decode() for r in ended.records]
        lines = [await pipe.claims.get(name, claim_in_name(name)) for name in found]
        file = tmp_path / "out.jsonl"
        await until(lambda: file.exists() and file.read_bytes().count(b"\n") == 2, "both lines are written")
        largest = max(len(r.value or b"") for r in await pipe.everything() if not r.topic.endswith("prompts"))
    assert sorted(file.read_bytes().splitlines()) == sorted(lines)
    assert largest < 1_000_000
    by_size = sorted((json.loads(line) for line in lines), key=lambda line: len(json.dumps(line)))
    assert len(by_size[0]["filler"]) == 1_500_000
    assert [i["type"] for i in by_size[1]["response"]["output"]] == ["function_call", "function_call_output", "message"]
    assert len(by_size[1]["response"]["output"][1]["output"]) == 9_000_000


async def test_what_no_reference_can_carry_costs_its_rollout_and_not_its_partition(kafka, topics, tmp_path):
    """A state beyond the topic's limit: before, the broker refused the commit for ever, and its neighbours waited with it."""
    async with ScriptedModel() as model, running(kafka, topics, tmp_path, model) as pipe:
        await pipe.send(faulty(seed_does="blob", size=9_000_000), *(mcqa(i) for i in range(10)), partition=0)
        ended = await pipe.ended(11)
        assert pipe.stage("admission").counters.reopened == 0
    assert [f.failure_class for f in ended.failures] == ["capacity"]
    assert len(ended.lines) == 10


async def test_a_cancelled_run_ends_as_cancelled_and_others_go_on(kafka, topics, tmp_path):
    async with ScriptedModel(Options(latency=Latency(seconds=1.0))) as model, running(kafka, topics, tmp_path, model) as pipe:
        await pipe.send(*({"row": mcqa(i), "run_id": run} for i in range(5) for run in ("stop", "go")))
        await until(lambda: model.requests == 10, "all are in flight")
        await pipe.control("stop", "cancelled")
        await pipe.send({"row": mcqa(), "run_id": "stop", "repeats": 3})
        ended = await pipe.ended(13)
        requests = model.requests
    assert [(f.outcome, f.failure_class, f.run_id) for f in ended.failures] == [("cancelled", "cancelled", "stop")] * 8
    assert {f.stage for f in ended.failures} == {"verifier", "agent"}  # in flight, and not begun
    assert len(ended.lines) == 5
    assert requests == 10


async def test_admission_pauses_and_resumes_while_turns_go_on(kafka, topics, tmp_path):
    options = Options(latency=Latency(seconds=0.5), tool_turns=2)
    async with ScriptedModel(options) as model, running(kafka, topics, tmp_path, model) as pipe:
        await pipe.send(*(faulty(tools=True) for _ in range(3)))
        await until(lambda: model.requests == 3, "three are in flight")
        await pipe.control("*", "paused")
        await pipe.send(*(faulty(tools=True) for _ in range(5)))
        await pipe.ended(3)  # after three turns each
        assert model.requests == 9
        await pipe.control("*", "running")
        assert len((await pipe.ended(8)).lines) == 8


async def test_a_verifier_that_stands_still_stops_admission_near_the_high_water_mark(kafka, topics, tmp_path):
    """Measured as lag once a second; what is admitted between two measurements is bounded by the room of the last one."""
    bounds = Bounds(high_water=50, low_water=20)
    async with ScriptedModel() as model, running(kafka, topics, tmp_path, model, bounds=bounds) as pipe:
        await pipe.send(*(mcqa(i) for i in range(10)))  # every partition has been committed by then
        await pipe.ended(10)
        verifier, admission = pipe.stage("verifier"), pipe.stage("admission")
        verifier.close_gate()
        await pipe.send(*(mcqa(i) for i in range(150)))
        await until(lambda: pressure_of(pipe)._closed, "the lag has been measured")
        await pipe.look(1000)
        waiting = await count(pipe, topics, TRAJECTORIES) - 10
        await pipe.look(1500)  # another measurement
        assert await count(pipe, topics, TRAJECTORIES) - 10 == await count(pipe, topics, TURNS) - 10 == waiting
        assert 50 - 10 <= waiting <= 50 + 64  # at least the room when the first ten were still open; at most a slice more
        assert not admission._may_start()
        verifier._shut = False
        ended = await pipe.ended(160)
    assert ended.failures == []


def pressure_of(pipe):
    (found,) = [c for c in pipe.workers["agent"].clients if type(c).__name__ == "Pressure"]
    return found


async def count(pipe, topics, spec):
    return sum(r.topic == topics.name(spec) for r in await pipe.everything())


@pytest.mark.parametrize("scored_format", ["json", "avro"])
async def test_at_least_once_from_end_to_end(kafka, topics, tmp_path, scored_format):
    """Tools, state, a duplicate and bad input, without transactions; the same lines, the second format included."""
    bounds = Bounds(scored_format=scored_format)
    row = {"responses_create_params": {"input": "x"}, "initial_count": 1, "expected_count": 1}
    prompt = {"row": row, "environment": "example_session_state_mgmt", "task_id": "t"}
    stages = ("agent", "tool", "verifier", "sink")
    options = {"bounds": bounds, "delivery": "at_least_once", "stages": stages, "scope": "default"}
    async with ScriptedModel() as model, running(kafka, topics, tmp_path, model, **options) as pipe:
        await pipe.send(b"garbage", prompt, prompt, *(faulty(tools=True) for _ in range(20)), partition=0)
        ended = await pipe.ended(23)
        file = tmp_path / "out.jsonl"
        await until(lambda: file.exists() and file.read_bytes().count(b"\n") == 21, "all lines are written")
    assert sorted(f.outcome for f in ended.failures) == ["duplicate", "failed"]
    lines = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert [line["reward"] for line in lines] == [1.0] * 21
    assert len({(line["_ng_task_index"], line["_ng_rollout_index"]) for line in lines}) == 21
    assert all(
        r.value[:2] == (b"\xc3\x01" if scored_format == "avro" else b'{"')
        for r in ended.records
        if r.topic == topics.name(SCORED)
    )
