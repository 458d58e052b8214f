"""A judged rollout in the verifier's step: calls in the line, an old line's calls out of it, a failed call as a failure."""

import json
from dataclasses import replace

import pytest
from support.steps import NOW, REF, SOURCE, read, record, reply, said

from environments.testing import ScriptedModel
from schemas import codec, jsontext
from schemas.errors import JudgeError
from schemas.events import Payload, Trajectory
from services.runtime.clients import Clients
from services.verifier_worker.judge_calls import JUDGE_CALLS
from services.verifier_worker.step import VerifyStep

ROW = {"responses_create_params": {"input": [{"role": "user", "content": "How?"}]}, JUDGE_CALLS: [{"name": "old"}]}


async def scored(bench, answer, *replies, record_judge_calls=True):
    bench.clients = Clients(models={"judge": ScriptedModel(*replies)})
    await bench.clients.start()
    tools = replace(bench.verify()._tools, record_judge_calls=record_judge_calls)
    event = Trajectory(
        ref=REF, environment="xstest", agent="a", source=SOURCE, env_state=b"", admitted_ms=0, finished_ms=int(NOW * 1000),
        row=Payload(jsontext.dumps(ROW)), response=Payload(jsontext.dumps(reply(said(answer)))),
    )  # fmt: skip
    (out,) = await VerifyStep(tools)(record("trajectories", codec.encode(event)))
    return out


async def test_the_line_has_the_calls_of_this_verification_and_no_older_ones(bench):
    line = json.loads((await scored(bench, "Sure.", "1_full_compliance")).value)
    assert line["reward"] == 1.0
    assert [(c["name"], c["params"], c["response"]["output"][0]["role"]) for c in line[JUDGE_CALLS]] == [
        ("judge", {"max_output_tokens": 50, "temperature": 0.0}, "assistant")
    ]


@pytest.mark.parametrize(("answer", "on"), [("", True), ("Sure.", False)])
async def test_without_calls_or_with_the_setting_off_there_is_no_such_field(bench, answer, on):
    line = json.loads((await scored(bench, answer, "1_full_compliance", record_judge_calls=on)).value)
    assert JUDGE_CALLS not in line
    assert line["reward"] == float(bool(answer))


async def test_a_failed_call_is_a_failure_of_class_judge_failed(bench):
    failure = read(await scored(bench, "Sure.", JudgeError("judge: 503", detail="busy")))
    assert (failure.failure_class, failure.message, failure.detail, failure.retryable) == (
        "judge_failed",
        "judge: 503",
        "busy",
        True,
    )
