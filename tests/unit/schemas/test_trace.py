"""Trace contexts: the standard's form, and the same one for the same rollout (platform.md G4: one trace id)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import trace
from schemas.identity import RolloutRef

REF = RolloutRef("run-1", "t", 3, 1)


def test_a_started_context_is_the_standards_and_names_the_rollouts_own_span():
    found = trace.parse(trace.started(REF))
    assert found is not None
    assert found.sampled
    assert found.span_id == trace.span_of(b"run-1", b"3-1")
    assert trace.started(REF) == trace.started(RolloutRef("run-1", "t", 3, 1))


def test_rollouts_attempts_and_runs_have_traces_of_their_own():
    others = [RolloutRef("run-1", "t", 3, 1, 1), RolloutRef("run-1", "t", 3, 2), RolloutRef("run-2", "t", 3, 1)]
    found = [trace.started(r) for r in (REF, *others)] + [trace.started_at("run-1/3-1"), trace.started_at("prompts/0/7")]
    assert len({f.split(b"-")[1] for f in found}) == len(found)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"00",
        b"00-" + b"0" * 32 + b"-" + b"1" * 16 + b"-01",
        b"00-" + b"1" * 32 + b"-" + b"0" * 16 + b"-01",
        b"ff-" + b"1" * 32 + b"-" + b"1" * 16 + b"-01",
        b"00-" + b"1" * 32 + b"-" + b"1" * 16 + b"-01-more",
        b"00-" + b"A" * 32 + b"-" + b"1" * 16 + b"-01",
        b"00-" + b"1" * 32 + b"-" + b"1" * 16 + b"-01\n",
        b"\xff" * 55,
    ],
)
def test_what_is_no_context_is_none(value):
    assert trace.parse(value) is None


def test_a_later_version_may_say_more_and_flags_are_read():
    found = trace.parse(b"01-" + b"1" * 32 + b"-" + b"2" * 16 + b"-00-more")
    assert found == (int("1" * 32, 16), int("2" * 16, 16), 0)
    assert not found.sampled


@given(st.binary(max_size=80))
def test_any_bytes_are_a_context_or_none(value):
    found = trace.parse(value)
    assert found is None or (0 < found.trace_id < 2**128 and 0 < found.span_id < 2**64)
