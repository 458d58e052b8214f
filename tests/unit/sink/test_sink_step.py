from __future__ import annotations

import base64
import inspect
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas import codec, headers
from schemas.errors import InfrastructureError
from schemas.events import Payload, Scored
from schemas.identity import Place, RolloutRef
from services.sink.step import FAILURES, OFFSET, RESULTS, SinkStep

SCORED = "rollstream.scored-rollouts"


async def no_claims(*_: Any) -> bytes:
    raise AssertionError("nothing here travels by reference")


def step(run_id: str | None = None, resolve: Any = no_claims, read_payload: Any = no_claims) -> SinkStep:
    return SinkStep(SCORED, resolve, read_payload, run_id)


async def done(made: Any) -> Any:
    return await made if inspect.isawaitable(made) else made


def line(outputs: Any) -> dict[str, Any]:
    (out,) = outputs
    assert b"\n" not in out.value
    return json.loads(out.value)


def test_a_scored_line_passes_byte_for_byte(make: Any) -> None:
    record = make.scored(4, task=7, rollout=2, attempt=1)
    (out,) = step()(record)
    assert out.value is record.value
    assert (out.topic, out.key) == (RESULTS, b"r/7-2")
    assert headers.value(out.headers, headers.ATTEMPT) == b"1"
    assert headers.value(out.headers, OFFSET) == b"4"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # `make` is a class
@given(
    task=st.integers(0, 2**53),
    rollout=st.integers(0, 2**20),
    attempt=st.integers(0, 9),
    reward=st.floats(allow_nan=False, allow_infinity=False),
)
def test_what_a_header_says_makes_the_output_that_parsing_makes(
    make: Any, task: int, rollout: int, attempt: int, reward: float
) -> None:
    plain = make.scored(4, task, rollout, attempt, reward=reward)
    ref = RolloutRef("r", "t", task, rollout, attempt)
    told = make.record(SCORED, 4, plain.value, [*plain.headers, headers.score_of(ref, reward)])
    assert step()(told) == step()(plain)
    assert step()(told)[0].value is told.value


@pytest.mark.parametrize(
    "said", [b"", b"7-2 0", b"7-2 0 nan", b"7-2 0 x", b"7 0 1.0", b"-7-2 0 1.0", b"7-2 0 1.0 2", b"a-b c d"]
)
def test_a_header_that_says_nothing_is_passed_over(make: Any, said: bytes) -> None:
    plain = make.scored(4, task=7, rollout=2)
    assert step()(make.record(SCORED, 4, plain.value, [*plain.headers, (headers.SCORE, said)])) == step()(plain)


@pytest.mark.parametrize("value", [b'{"reward":1.0', b"[]", b'{"reward":\n1.0}'])
def test_a_header_does_not_make_a_line_of_what_is_none(make: Any, value: bytes) -> None:
    said = [("rs-run", b"r"), headers.score_of(RolloutRef("r", "t", 7, 2), 1.0)]
    bare = make.record(SCORED, 4, value, [("rs-run", b"r")])
    assert step()(make.record(SCORED, 4, value, said)) == step()(bare)


def test_the_key_of_a_line_is_the_key_of_its_rollout(make: Any) -> None:
    (result,) = step()(make.scored(0, task=7))
    (failure,) = step()(make.failed(0, make.event(task=7, attempt=3)))
    assert result.key == failure.key == RolloutRef("r", "task-7", 7, 0).key


def test_avro_scored_carries_the_same_line(make: Any) -> None:
    plain = make.scored(0, task=1)
    event = Scored(RolloutRef("r", "t", 1, 0), "e", "a", Place("p", 0, 0), 1.0, Payload(plain.value))
    (out,) = step()(make.record(SCORED, 0, codec.encode(event), [("rs-run", b"r")]))
    assert (out.topic, out.value) == (RESULTS, plain.value)


async def test_claims_are_fetched(make: Any) -> None:
    plain = make.scored(0, task=1)

    async def resolve(name: str) -> bytes:
        assert name == "r/0-0/line"
        return plain.value

    async def read_payload(ref: Any, part: str, payload: Payload) -> bytes:
        assert (ref.run_id, part, payload.size) == ("r", "line", len(plain.value))
        return plain.value

    by_name = make.record(SCORED, 0, b"r/0-0/line", [("rs-run", b"r"), ("rs-claim", b"")])
    event = Scored(RolloutRef("r", "t", 1, 0), "e", "a", Place("p", 0, 0), 1.0, make.claim(plain.value))
    by_event = make.record(SCORED, 0, codec.encode(event), [("rs-run", b"r")])
    for record in (by_name, by_event):
        (out,) = await done(step(resolve=resolve, read_payload=read_payload)(record))
        assert out.value == plain.value


async def test_a_claim_that_is_gone_costs_one_line(make: Any) -> None:
    async def resolve(name: str) -> bytes:
        raise InfrastructureError(f"no claim {name}")

    record = make.record(SCORED, 5, b"some-name", [("rs-run", b"r"), ("rs-rollout", b"3-1"), ("rs-claim", b"")])
    found = line(await done(step(resolve=resolve)(record)))
    assert found["message"] == "no claim some-name"
    assert found["place"] == f"{SCORED}/0/5"
    assert found["rollout_id"] == "3-1"
    assert found["_ng_failure_class"] == "infrastructure"
    assert "_ng_failure_terminal" not in found


def test_other_runs_are_skipped_without_a_look_at_the_value(make: Any) -> None:
    assert step("mine")(make.record(SCORED, 0, b"{nonsense", [("rs-run", b"theirs")])) == ()
    assert step("r")(make.scored(0, task=0)) != ()
    assert step("mine")(make.failed(0, make.event(run="theirs"))) == ()


def test_a_record_without_run_header_belongs_to_the_run_its_value_names(make: Any) -> None:
    record = make.record("rollstream.failures", 0, codec.encode(make.event(run="mine")))
    assert step("mine")(record)
    assert step("other")(record) == ()
    assert step("default")(make.record(SCORED, 0, b"?"))


def test_failure_line_has_identity_row_response_and_reason(make: Any) -> None:
    row = {
        "responses_create_params": {"input": "hi"},
        "agent_ref": {"name": "mcqa_simple_agent"},
        "expected_answer": "A",
        "_ng_task_index": 99,
    }
    event = make.event(
        task=5,
        attempt=2,
        detail="said no",
        elapsed_ms=12,
        row=Payload(json.dumps(row).encode()),
        response=Payload(b'{"id":"x"}'),
    )
    found = line(step()(make.failed(0, event)))
    assert found == {
        "responses_create_params": {"input": "hi"},
        "expected_answer": "A",
        "_ng_task_index": 5,
        "_ng_rollout_index": 0,
        "_ng_attempt_index": 2,
        "agent_ref": {"name": "mcqa_simple_agent"},
        "response": {"id": "x"},
        "_ng_failure_class": "model",
        "stage": "agent",
        "error_type": "ModelError",
        "message": "401",
        "detail": "said no",
        "outcome": "failed",
        "elapsed_ms": 12,
        "failed_ms": 7,
        "run_id": "r",
        "place": "rollstream.turns/3/9",
    }


@pytest.mark.parametrize(
    ("retryable", "outcome", "terminal"),
    [(True, "failed", False), (False, "failed", True), (False, "duplicate", False), (False, "superseded", False)],
)
def test_terminal_is_for_what_another_attempt_cannot_help(make: Any, retryable: bool, outcome: str, terminal: bool) -> None:
    found = line(step()(make.failed(0, make.event(retryable=retryable, outcome=outcome))))
    assert found.get("_ng_failure_terminal", False) is terminal
    assert found["outcome"] == outcome


def test_a_failed_judge_is_marked_for_judging_again(make: Any) -> None:
    found = line(
        step()(
            make.failed(
                0, make.event(failure_class="judge_failed", message="judge said 500", response=Payload(b'{"output":[]}'))
            )
        )
    )
    assert found["_ng_failure_judge_error"] == "judge said 500"
    assert found["reward"] == 0.0
    assert found["response"] == {"output": []}


def test_the_message_that_could_not_be_read_is_kept_whole(make: Any) -> None:
    text, binary = '{"a": "é\n"'.encode(), b"\xff\x00\xfe"
    assert line(step()(make.failed(0, make.event(task=None, original=Payload(text)))))["original"] == text.decode()
    kept = line(step()(make.failed(0, make.event(task=None, original=Payload(binary)))))["original"]
    assert base64.b64decode(kept["base64"]) == binary


def test_what_an_unfinished_rollout_had_said_is_its_conversation(make: Any) -> None:
    items = b'{"type":"message","role":"user","content":"a"},{"type":"message","role":"assistant","content":"b"}'
    found = line(step()(make.failed(0, make.event(response=Payload(items)))))
    assert [i["content"] for i in found["conversation"]] == ["a", "b"]
    assert "response" not in found
    cut = line(step()(make.failed(0, make.event(response=Payload(items[:-5])))))
    assert "conversation" not in cut


def test_a_step_that_ran_over_can_be_tried_again(make: Any) -> None:
    found = line(step().recover(make.scored(3, task=1), TimeoutError("no result within 300 s")))
    assert found["_ng_failure_class"] == "timeout"
    assert "_ng_failure_terminal" not in found


def test_rows_refused_before_they_were_sent_name_file_and_line(make: Any) -> None:
    assert line(step()(make.failed(0, make.event(task=None, place=None, file="rows.jsonl", line=3))))["place"] == "rows.jsonl:3"


def test_a_row_field_named_like_ours_is_kept(make: Any) -> None:
    row = {"responses_create_params": {"input": ""}, "message": "verify me", "stage": "agent"}
    found = line(step()(make.failed(0, make.event(row=Payload(json.dumps(row).encode())))))
    assert (found["message"], found["row_fields"]) == ("401", {"message": "verify me"})


async def test_a_payload_that_is_gone_leaves_the_rest(make: Any) -> None:
    async def read_payload(ref: Any, part: str, payload: Payload) -> bytes:
        raise InfrastructureError("claim store down")

    event = make.event(row=make.claim(b"12345"), response=Payload(b'{"id":"x"}'))
    found = line(await done(step(read_payload=read_payload)(make.failed(0, event))))
    assert found["response"] == {"id": "x"}
    assert found["detail"] == "its row could not be fetched: claim store down"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "empty"),
        (b"", "empty"),
        (b"{", "not JSON"),
        (b"[]", "object"),
        (b'{"reward":1}', "_ng_task_index"),
        (b'{"reward":NaN,"_ng_task_index":0,"_ng_rollout_index":0}', "not JSON"),
        (b'{"reward":true,"_ng_task_index":0,"_ng_rollout_index":0}', "reward"),
        (b'{"reward":"1","_ng_task_index":0,"_ng_rollout_index":0}', "reward"),
        (b'{"reward":1,"_ng_task_index":-1,"_ng_rollout_index":0}', "_ng_task_index"),
        (b"\xc3\x01\x00\x00\x00\x00\x00\x00\x00\x00", "unknown Avro schema"),
    ],
)
def test_a_record_that_is_no_result_becomes_a_failure_line(make: Any, value: bytes | None, reason: str) -> None:
    found = line(step()(make.record(SCORED, 8, value, [("rs-run", b"r")])))
    assert reason in found["message"]
    assert (found["_ng_failure_class"], found["stage"], found["place"], found["run_id"]) == (
        "data",
        "sink",
        f"{SCORED}/0/8",
        "r",
    )
    assert found["_ng_failure_terminal"] is True


def test_lone_surrogates_and_line_ends_inside_a_line(make: Any) -> None:
    odd = b'{"reward":1,"_ng_task_index":0,"_ng_rollout_index":0,"t":"\\ud800"}'
    (out,) = step()(make.record(SCORED, 0, odd))
    assert (out.topic, out.value) == (RESULTS, odd)
    (out,) = step()(make.record(SCORED, 0, odd.replace(b',"', b',\n "')))
    assert (out.topic, out.value) == (RESULTS, odd)


@given(st.binary(max_size=200), st.booleans(), st.booleans())
def test_no_bytes_whatever_stop_the_step(data: bytes, scored: bool, avro: bool) -> None:
    import aiokafka

    value = codec.MARKER + data if avro else data
    record = aiokafka.ConsumerRecord(SCORED if scored else "rollstream.failures", 0, 0, 0, 0, None, value, None, 0, 0, ())
    found = line(step()(record))
    assert found["_ng_failure_class"] == "data"


def test_failures_are_told_from_results_by_topic(make: Any) -> None:
    (out,) = step()(make.failed(0, make.event()))
    assert out.topic == FAILURES
