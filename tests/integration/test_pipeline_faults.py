"""Models, tools and verifiers that fail in every way: what that costs is their own rollout (issue: bad input and faults)."""

from __future__ import annotations

import json
import socket
import time

import pytest
from support.pipeline import KEY, Bounds, endpoint, faulty, mcqa, running, until

from rollstream.scripted import Fault, FaultKind, ScriptedModel
from schemas.errors import FailureClass, Outcome
from schemas.topics import SCORED

pytestmark = pytest.mark.integration


def asking(number, *faults, **fields):
    """A prompt whose model call meets these faults, one a try."""
    row = mcqa(number)
    wanted = json.dumps([f.model_dump(mode="json") for f in faults])
    row["responses_create_params"]["metadata"] = {"scripted_faults": wanted}
    return {"row": row, "run_id": "r", "task_index": number, **fields}


def status(code, **fields):
    return Fault(kind=FaultKind.STATUS, status=code, **fields)


HANG = Fault(kind=FaultKind.HANG_AFTER_HEADERS, seconds=60)
LATE = Fault(kind=FaultKind.HANG_BEFORE_HEADERS, seconds=600)

SCORED_AFTER = {
    1: [status(429, retry_after="0")],
    2: [status(500), Fault(kind=FaultKind.GARBAGE)],
    3: [HANG],
    4: [Fault(kind=FaultKind.OVERFLOW)],
    5: [Fault(kind=FaultKind.SURROGATE)],
    6: [Fault(kind=FaultKind.USAGE_NULL)],
}
FAILED_WITH = {
    11: ([status(401, body="no such key")], FailureClass.MODEL, "HTTP 401 (check the api key)", "no such key"),
    12: ([status(429, retry_after="0", body="slow down")] * 3, FailureClass.MODEL, "HTTP 429", "slow down"),
    13: ([status(500, body="out of memory")] * 3, FailureClass.MODEL, "HTTP 500", "out of memory"),
    14: ([Fault(kind=FaultKind.GARBAGE, body="<html>gateway")] * 3, FailureClass.MODEL, "not JSON", "<html>gateway"),
    15: ([HANG] * 3, FailureClass.TIMEOUT, "the body did not end within", ""),
    16: ([LATE] * 3, FailureClass.TIMEOUT, "no answer within", ""),
    17: ([status(400, body="unknown parameter")], FailureClass.MODEL, "HTTP 400", "unknown parameter"),
    18: ([Fault(kind=FaultKind.NOT_A_RESPONSE)] * 3, FailureClass.MODEL, "HTTP 200, but", "chat.completion"),
}


async def test_a_model_that_fails_costs_its_rollout_after_bounded_retries(kafka, topics, tmp_path):
    """Also: no record of any topic shows the key, though the server says it; ordinary rollouts beside them are scored."""
    said = status(401, body=f"the key {KEY} is not known here")
    async with ScriptedModel(faults=[said]) as model:
        policy = endpoint(model.base_url, timeouts={"first_byte_s": 0.7, "body_s": 0.3})
        async with running(kafka, topics, tmp_path, policy) as pipe:
            await pipe.send(asking(0))
            leaked = (await pipe.ended(1)).failure()
            await pipe.send(*(asking(n, *f) for n, f in SCORED_AFTER.items()))
            await pipe.send(*(asking(n, *f) for n, (f, *_) in FAILED_WITH.items()))
            await pipe.send(asking(20, LATE, timeout_s=0.5), *(asking(n) for n in range(30, 40)))
            ended = await pipe.ended(1 + len(SCORED_AFTER) + len(FAILED_WITH) + 1 + 10)
            everything = await pipe.everything()
            requests = model.requests
    assert leaked.failure_class == FailureClass.MODEL
    assert "the key *** is not known here" in leaked.detail
    assert not any(KEY.encode() in (r.value or b"") for r in everything)
    assert {line["_ng_task_index"] for line in ended.lines} == {*SCORED_AFTER, *range(30, 40)}
    failures = {f.ref.task_index: f for f in ended.failures if f.ref}
    for number, (_, kind, message, detail) in FAILED_WITH.items():
        failure = failures[number]
        assert (failure.failure_class, failure.outcome) == (kind, Outcome.FAILED)
        assert message in failure.message
        assert detail in failure.detail
    assert failures[20].failure_class == FailureClass.TIMEOUT
    assert "deadline passed" in failures[20].message
    retried = sum(len(f) for f in SCORED_AFTER.values()) - 3  # three of them change the answer and are not met again
    assert requests == 1 + (len(SCORED_AFTER) + retried) + sum(len(f) for f, *_ in FAILED_WITH.values()) + 1 + 10
    lines = {line["_ng_task_index"]: line for line in ended.lines}
    assert lines[6]["response"]["usage"] is None
    assert lines[4]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    (surrogate,) = [r.value for r in ended.records if r.topic == topics.name(SCORED) and b"half an emoji" in r.value]
    assert b"half an emoji: \\ud83d" in surrogate


async def test_a_model_that_is_not_there_is_a_model_failure(kafka, topics, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    async with running(kafka, topics, tmp_path, endpoint(url)) as pipe:
        await pipe.send(mcqa())
        failure = (await pipe.ended(1)).failure()
    assert failure.failure_class == FailureClass.MODEL
    assert "no connection" in failure.message
    assert "after 3 of 3 tries" in failure.message
    assert failure.retryable


CASES = {
    "raise": FailureClass.TOOL, "exit": FailureClass.TOOL, "cancel": FailureClass.TOOL, "nan": None, "hang": FailureClass.TIMEOUT,
    "compute": None,
}  # fmt: skip
VERIFIERS = {
    **{k: FailureClass.VERIFIER if v == FailureClass.TOOL else v for k, v in CASES.items()},
    "nan": FailureClass.VERIFIER,
}


async def time_of(pipe, prompts, count):
    """Seconds until these prompts have ended, with whom `count` records have come out."""
    start = time.monotonic()
    await pipe.send(*prompts)
    await pipe.ended(count)
    return time.monotonic() - start


@pytest.mark.parametrize("stage", ["tool", "verifier"])
async def test_environment_code_that_fails_costs_its_rollout_and_delays_nobody(kafka, topics, tmp_path, stage):
    """One computes synchronously for 3 s and succeeds late, one never returns; the others stay within 1 s of their time."""
    cases = CASES if stage == "tool" else VERIFIERS
    field = "tool_does" if stage == "tool" else "verify_does"
    bounds = Bounds(tool_timeout_s=5, verify_timeout_s=5)

    def others(first):
        return [{"row": faulty(tools=True), "run_id": "r", "task_index": first + i} for i in range(20)]

    async with ScriptedModel() as model, running(kafka, topics, tmp_path, model, bounds=bounds) as pipe:
        normal = await time_of(pipe, others(100), 20)
        rows = [faulty(tools=True, seconds=3.0, **{field: how}) for how in cases]
        start = time.monotonic()
        await pipe.send(*({"row": row, "run_id": "r", "task_index": i} for i, row in enumerate(rows)), *others(200))
        ended = await pipe.ended(40 + len(cases))
        late = max(at for rollout, at in ended.at.items() if 200 <= int(rollout.split("-")[0]) < 300) - start
        await pipe.idle()
        normal = max(normal, await time_of(pipe, others(300), 60 + len(cases)))  # the machine may be busier by now
        assert not any(w.error for w in pipe.workers.values())
    failures = {f.ref.task_index: f.failure_class for f in ended.failures if f.ref}
    assert failures == {i: kind for i, kind in enumerate(cases.values()) if kind}
    figures = f"{stage}: the others took {normal:.2f} s alone and {late:.2f} s beside code that computes and hangs"
    print(figures)  # noqa: T201 - the figures are the point
    assert late <= normal + 1


async def test_code_that_never_returns_is_interrupted_and_its_thread_comes_back(kafka, topics, tmp_path):
    """Pure Python that computes for ever, in a tool and in a verifier: class timeout, and the worker goes on."""
    bounds = Bounds(tool_timeout_s=1, verify_timeout_s=1)
    async with ScriptedModel() as model, running(kafka, topics, tmp_path, model, bounds=bounds) as pipe:
        await pipe.send(faulty(tools=True, tool_does="forever"), faulty(tools=True, verify_does="forever"))
        ended = await pipe.ended(2)
        assert {(f.failure_class, f.stage) for f in ended.failures} == {("timeout", "tool"), ("timeout", "verifier")}
        offloads = [c for w in pipe.workers.values() for c in w.clients if hasattr(c, "held_up")]
        await until(lambda: not any(o.held_up for o in offloads), "the threads have come back")
        await pipe.send(*(faulty(tools=True) for _ in range(5)))
        assert len((await pipe.ended(7)).lines) == 5
