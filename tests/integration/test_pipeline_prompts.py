"""What may be put onto `prompts`, what becomes of it, and what becomes of what may not (issue: bad input, duplicates)."""

from __future__ import annotations

import json

import pytest
from support.pipeline import MCQA, faulty, mcqa, running, until

from rollstream.scripted import ScriptedModel
from schemas import codec
from schemas.errors import FailureClass, Outcome
from schemas.events import Prompt
from schemas.identity import task_index_of
from schemas.topics import PROMPTS

pytestmark = pytest.mark.integration


async def test_prompts_in_all_three_forms_are_scored(kafka, topics, tmp_path):
    """Bare rows from a producer that knows nothing of the project, JSON events, Avro events; ids follow from the place."""
    async with ScriptedModel() as model, running(kafka, topics, tmp_path, model) as pipe:
        (bare,) = await pipe.send(mcqa(), headers=[("traceparent", b"00-1-2-01")])
        await pipe.send(
            {"row": mcqa(1), "run_id": "night", "task_id": "json task", "repeats": 3},
            codec.encode(Prompt(row=json.dumps(mcqa(2)).encode(), run_id="night", task_index=7, repeats=2)),
            {**mcqa(3), "_ng_task_index": 11, "_ng_rollout_index": 4, "_ng_rollout_id": "mine"},
        )
        ended = await pipe.ended(7)
    assert ended.failures == []
    expected = {(bare.partition << 40 | bare.offset, 0), (task_index_of("json task"), 0), (task_index_of("json task"), 1)}
    expected |= {(task_index_of("json task"), 2), (7, 0), (7, 1), (11, 4)}
    assert {(line["_ng_task_index"], line["_ng_rollout_index"]) for line in ended.lines} == expected
    assert all(line["reward"] in (0.0, 1.0) and line["agent_ref"]["name"] == MCQA for line in ended.lines)
    by_index = {(line["_ng_task_index"], line["_ng_rollout_index"]): line for line in ended.lines}
    assert by_index[11, 4]["_ng_rollout_id"] == "mine"
    records = {dict(r.headers)["rs-rollout"].decode(): r for r in ended.records}
    of_bare = records[f"{bare.partition << 40 | bare.offset}-0"]
    assert of_bare.key == f"default/{topics.name(PROMPTS)}-{bare.partition}-{bare.offset}".encode()
    assert dict(of_bare.headers)["traceparent"] == b"00-1-2-01"
    assert dict(records["mine"].headers)["rs-run"] == b"default"


BAD = {
    "not JSON": (b"garbage", "not JSON"),
    "not an object": (b"[1, 2]", "expected a JSON object, found a list"),
    "no value": (None, "empty"),
    "an unknown schema": (b"\xc3\x01" + b"\x07" * 8 + b"body", "unknown Avro schema 0707070707070707"),
    "a lone surrogate": (b'{"responses_create_params":{"input":"half \\ud83d"}}', "not JSON"),
    "NaN": (b'{"responses_create_params":{"input":"x"},"score":NaN}', "not JSON"),
    "no parameters": (b'{"input":"x"}', "no responses_create_params"),
    "20 MB": (b'{"responses_create_params":{"input":"' + b"x" * (20 << 20) + b'"}}', "the limit is 16,777,216"),
    "an unknown key": (b'{"responses_create_params":{"input":"x","max_tokens":5}}', "responses_create_params.max_tokens: unknown"),
    "an unknown event key": (b'{"row":{"responses_create_params":{"input":"x"}},"repeat":2}', "unknown key 'repeat'"),
}  # fmt: skip
BAD_TASKS = {
    "an unknown environment": ({"row": mcqa(), "environment": "mcqq"}, "did you mean 'mcqa'"),
    "an unknown agent": (mcqa(agent_ref={"name": "mcqa_simple_agenta"}), f"did you mean '{MCQA}'"),
    "no agent": ({"responses_create_params": {"input": "x"}}, "names no agent"),
    "a task that does not fit": (mcqa(expected_answer=5), "row.expected_answer"),
    "a seed that refuses": (faulty(seed_does="refuse"), "refused on purpose"),
}


async def test_bad_input_is_one_failure_each_and_the_rest_is_scored(kafka, topics, tmp_path):
    """Each leaves its class, its reason, its place and its bytes; good rows before, between and after are scored."""
    bad = [v for v, _ in BAD.values()] + [json.dumps(v).encode() for v, _ in BAD_TASKS.values()]
    reasons = [r for _, r in (*BAD.values(), *BAD_TASKS.values())]
    async with ScriptedModel() as model, running(kafka, topics, tmp_path, model) as pipe:
        values = [v for i, b in enumerate(bad) for v in (b, mcqa(i))]
        sent = await pipe.send(*values)
        ended = await pipe.ended(len(values))
    assert len(ended.lines) == len(bad)
    found = {(f.place.topic, f.place.partition, f.place.offset): f for f in ended.failures if f.place}
    for value, reason, at in zip(bad, reasons, sent[::2], strict=True):
        failure = found.pop((topics.name(PROMPTS), at.partition, at.offset))
        assert failure.failure_class == FailureClass.DATA
        assert failure.outcome == Outcome.FAILED
        assert not failure.retryable
        assert reason in failure.message
        assert (failure.original.data or failure.row.data) == (value or b"")
    assert found == {}


async def test_the_same_prompt_twice_is_one_line(kafka, topics, tmp_path):
    """Caught at admission, before a model call: by the window of its partition (`services.agent_worker.seen`), which a new
    owner of the partition fills again by reading the last records below the committed offset."""
    prompt = {"row": mcqa(), "run_id": "r", "task_id": "t", "repeats": 2}
    refused = {"row": {**mcqa(), "agent_ref": {"name": "nobody"}}, "run_id": "r", "task_id": "u"}
    async with ScriptedModel() as model:
        async with running(kafka, topics, tmp_path, model) as pipe:
            await pipe.send(prompt, prompt, refused, key=b"k")  # in one batch
            await pipe.ended(2 + 2 + 1)
            await pipe.send(prompt, key=b"k")  # in a later one
            await pipe.ended(7)
            await pipe.idle()
        async with running(kafka, topics, tmp_path, model) as pipe:
            await pipe.send(prompt, refused, key=b"k")  # to another worker
            ended = await pipe.ended(7 + 3)
            await pipe.idle()
        assert model.requests == 2
    assert sorted(line["_ng_rollout_index"] for line in ended.lines) == [0, 1]
    duplicates = [f for f in ended.failures if f.outcome == Outcome.DUPLICATE]
    assert len(duplicates) == 2 + 2 + 2 + 1
    assert len(ended.failures) - len(duplicates) == 1
    assert {dict(r.headers).get("rs-outcome") for r in ended.records} == {None, b"duplicate", b"failed"}


async def test_a_duplicate_on_another_partition_is_one_line_in_the_file(kafka, topics, tmp_path):
    """A producer that keys one task differently each time gets past admission's window; the sink catches it."""
    prompt = {"row": mcqa(), "run_id": "r", "task_id": "t"}
    async with ScriptedModel() as model:
        stages = ("agent", "tool", "verifier", "sink")
        async with running(kafka, topics, tmp_path, model, stages=stages, scope="r") as pipe:
            await pipe.send(prompt, partition=0)
            await pipe.send(prompt, partition=1)
            await pipe.ended(2)
            lines, failures = tmp_path / "out.jsonl", tmp_path / "out_failures.jsonl"
            await until(lambda: failures.exists() and failures.read_bytes().endswith(b"\n"), "both lines are written")
    assert len(lines.read_bytes().splitlines()) == 1
    assert [json.loads(line)["outcome"] for line in failures.read_bytes().splitlines()] == ["duplicate"]
