from __future__ import annotations

import asyncio
import json

import pytest
from support.pipeline import faulty
from support.steps import NOW, REF, SOURCE, read, record, reply, said

from schemas import codec, jsontext
from schemas.events import Payload, Scored, Trajectory
from services.runtime.claims import claim_in_name


def trajectory(row, **changes):
    values = {"ref": REF, "environment": "faulty", "agent": "faulty_agent", "source": SOURCE, "env_state": b'{"calls":3}'}
    values |= {"admitted_ms": int(NOW * 1000) - 500, "finished_ms": int(NOW * 1000), "row": Payload(jsontext.dumps(row))}
    return Trajectory(**(values | {"response": Payload(jsontext.dumps(reply(said("x"))))} | changes))


async def score(bench, event, scored_format="json"):
    return await bench.take(bench.verify(scored_format), "trajectories", event)


async def failure(bench, row, **changes):
    return read(await score(bench, trajectory(row, **changes)))


async def test_a_line_and_its_headers(bench):
    row = faulty(id=5)
    out = await score(bench, trajectory(row))
    assert (out.topic, out.key) == ("p.scored-rollouts", REF.task_key)
    line = json.loads(out.value)
    expected = [("rs-run", b"r"), ("rs-rollout", b"7-1"), ("rs-environment", b"faulty")]
    expected += [("rs-score", f"7-1 0 {line['reward']}".encode()), ("rs-source", b"p.prompts/1/42")]
    assert out.headers == expected
    assert list(line) == [
        "responses_create_params",
        "response",
        "id",
        "calls",
        "moves",
        "reward",
        "_ng_task_index",
        "_ng_rollout_index",
        "agent_ref",
    ]
    assert (line["reward"], line["calls"], line["agent_ref"]) == (1.0, 3, row["agent_ref"])


@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [
        ("raise", "verifier", "thrown on purpose"),
        ("exit", "verifier", "SystemExit"),
        ("cancel", "verifier", "CancelledError"),
        ("nan", "verifier", "reward must be a finite number, found nan"),
        ("late_nan", "verifier", "reward must be a finite number, found nan"),
        ("none", "verifier", "returned NoneType"),
        ("odd_extra", "verifier", "the verdict cannot be written as JSON"),
        ("refuse", "data", "refused on purpose"),
    ],
)
async def test_a_verifier_that_fails_is_a_failure_of_its_class_never_a_reward(bench, how, kind, text):
    found = await failure(bench, faulty(verify_does=how))
    assert (found.failure_class, found.outcome, found.stage, found.elapsed_ms) == (kind, "failed", "verifier", 500)
    assert text in found.message
    assert json.loads(found.response.data)["output"] == [said("x")]


@pytest.mark.parametrize("how", ["hang", "forever"])
async def test_a_verifier_that_never_returns_is_a_timeout_and_the_others_go_on(bench, how):
    bench.timeout_s = 0.5
    late = asyncio.ensure_future(failure(bench, faulty(verify_does=how)))
    await asyncio.sleep(0)
    out = await score(bench, trajectory(faulty()))
    assert not late.done()
    assert json.loads(out.value)["reward"] == 1.0
    found = await late
    assert (found.failure_class, found.message) == ("timeout", "the verifier did not return within 0.5 s")


async def test_a_nan_among_the_extras_is_null_with_a_note_and_surrogates_stay(bench):
    out = await score(bench, trajectory(faulty(verify_does="nan_extra")))
    line = jsontext.loads_lenient(out.value)
    assert (line["score"], line["said"], line["reward"]) == (None, "half \ud83d", 0.5)
    assert line["_ng_notes"] == ["score was not a finite number and is null here"]
    assert b'"half \\ud83d"' in out.value


async def test_what_the_model_wrote_is_in_the_line_byte_for_byte(bench):
    response = b'{"output":[],"text":"half \\ud83d","n":12345678901234567890123,"usage":null}'
    out = await score(bench, trajectory(faulty(), response=Payload(response)))
    assert response in out.value


async def test_avro(bench):
    out = await score(bench, trajectory(faulty()), "avro")
    event = codec.decode(out.value, Scored)
    assert (event.ref, event.environment, event.agent, event.source, event.reward) == (
        REF,
        "faulty",
        "faulty_agent",
        SOURCE,
        1.0,
    )
    assert json.loads(event.line.data)["reward"] == 1.0


@pytest.mark.parametrize("scored_format", ["json", "avro"])
async def test_a_line_beyond_a_record_travels_by_reference(bench, scored_format):
    response = jsontext.dumps(reply(said("x" * 2_000_000)))
    packed = await bench.claims.pack(REF, "response", response)
    assert packed.size
    out = await score(bench, trajectory(faulty(), response=packed), scored_format)
    assert len(out.value) < 500
    if scored_format == "avro":
        data = await bench.claims.unpack(REF, "line", codec.decode(out.value, Scored).line)
    else:
        name = dict(out.headers)["rs-claim"]
        assert out.value == name
        data = await bench.claims.get(name.decode(), claim_in_name(name.decode()))
    assert response in data


async def test_a_cancelled_run_is_not_scored(bench):
    bench.control.cancelled = {"r"}
    assert (await failure(bench, faulty())).outcome == "cancelled"


async def test_a_record_that_is_no_trajectory_is_one_failure(bench):
    (out,) = bench.verify()(record("trajectories", b"garbage"))
    assert (read(out).failure_class, read(out).original.data) == ("data", b"garbage")
    bench.scope = "mine"
    assert bench.verify()(record("trajectories", b"garbage", [("rs-run", b"theirs")])) == ()
