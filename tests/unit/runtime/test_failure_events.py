"""Failure events: one record for whatever went wrong, readable, bounded, never a second failure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.runtime.scripted import record

from schemas import codec, headers
from schemas.errors import DataError, FailureClass, JudgeError, RolloutCancelled, RolloutTimeout
from schemas.events import Failure, Payload, Rollout, ToolCalls, Trajectory, Turn
from schemas.identity import Place, RolloutRef
from services.runtime.failures import Failures

REF = RolloutRef("run", "task", 3, 1)
SOURCE = Place("prompts", 0, 7)
ROLLOUT = Rollout(REF, "env", "agent", SOURCE, 1_000, Payload(b'{"a":1}'), items=b'{"role":"assistant"}')
TRAJECTORY = Trajectory(REF, "env", "agent", SOURCE, 1_000, 2_000, Payload(b'{"a":1}'), Payload(b'{"output":[]}'))


@pytest.fixture(name="failures")
def _failures():
    return made()


def made():
    return Failures("failures", "verifier", FailureClass.VERIFIER, now=lambda: 5.0)


def only(outputs):
    (out,) = outputs
    assert out.topic == "failures"
    return out, codec.decode(out.value, Failure)


@pytest.mark.parametrize("event", [Turn(ROLLOUT), ToolCalls(ROLLOUT), TRAJECTORY], ids=lambda e: type(e).__name__)
def test_a_step_that_raised_ends_the_rollout_that_its_record_held(failures, event):
    out, failure = only(failures.of_step(record(9, value=codec.encode(event)), ValueError("no")))
    assert (failure.ref, failure.environment, failure.agent, failure.source) == (REF, "env", "agent", SOURCE)
    assert (failure.failure_class, failure.outcome, failure.stage) == ("verifier", "failed", "verifier")
    assert (failure.message, failure.error_type) == ("ValueError('no')", "ValueError")
    assert failure.place == Place("in", 0, 9)
    assert failure.elapsed_ms == 4_000
    assert failure.row == Payload(b'{"a":1}')
    assert out.key == REF.task_key
    assert headers.value(out.headers, headers.OUTCOME) == b"failed"


@pytest.mark.parametrize("value", [None, b"", b"\xff\x00", b"not an event", b"\xc3\x01" + bytes(8) + b"unknown schema"])
def test_a_record_that_cannot_be_read_keeps_its_bytes(failures, value):
    bad = record(9, value=b"")
    bad = type(bad)(**{f: getattr(bad, f) for f in bad.__dataclass_fields__} | {"value": value, "key": b"\xff"})
    out, failure = only(failures.of_step(bad, DataError("not an event")))
    assert failure.ref is None
    assert failure.original == Payload(value or b"")
    assert (failure.failure_class, failure.retryable, failure.message) == ("data", False, "not an event")
    assert out.key == b"\xff"


@pytest.mark.parametrize(
    ("error", "kind", "outcome"),
    [
        (RolloutCancelled("stop"), "cancelled", "cancelled"),
        (RolloutTimeout("late"), "timeout", "failed"),
        (JudgeError("dead", detail="503"), "judge_failed", "failed"),
        (TimeoutError("no result within 3 s"), "timeout", "failed"),
        (KeyError("x"), "verifier", "failed"),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, Exception) else None,
)
def test_an_error_says_its_class_or_the_stage_is_to_blame(failures, error, kind, outcome):
    _, failure = only(failures.of_step(record(1, value=codec.encode(TRAJECTORY)), error))
    assert (failure.failure_class, failure.outcome) == (kind, outcome)
    assert failure.detail == getattr(error, "detail", "")


class Foreign(Exception):
    """As other packages make them: a `detail` of any type, a `repr` that is broken."""

    def __init__(self, detail):
        super().__init__("foreign")
        self.detail = detail


class Broken(Exception):
    def __repr__(self):
        raise RuntimeError("not even this")

    __str__ = __repr__


@pytest.mark.parametrize(
    "error", [Foreign(None), Foreign({"a": 1}), Foreign(b"x"), Foreign("sk-secret"), Broken()], ids=lambda e: type(e).__name__
)
def test_exceptions_of_other_packages_are_recorded_whatever_they_hold(failures, error):
    _, failure = only(failures.of_step(record(1), error))
    assert failure.error_type == type(error).__name__
    assert failure.detail == "", "only our own errors promise that it is masked"
    assert failure.message


@given(st.text(max_size=50), st.integers(0, 3))
def test_any_text_can_be_recorded(text, times):
    text = text * 10**times + "\ud800\x00"
    _, failure = only(made().of_step(record(1), DataError(text, detail=text)))
    assert len(failure.message) < 9_000
    assert failure.message.startswith(text[:20].encode("utf-8", "backslashreplace").decode()[:20])


def test_the_run_comes_from_the_header_when_nothing_else_can_be_read(failures):
    bad = record(1)
    bad = type(bad)(**{f: getattr(bad, f) for f in bad.__dataclass_fields__} | {"headers": ((headers.RUN, b"r\xff"),)})
    out, failure = only(failures.of_step(bad, DataError("x")))
    assert failure.run_id == "r�"
    assert headers.value(out.headers, headers.RUN) == "r�".encode()
