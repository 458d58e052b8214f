"""What the control topic says, entry by entry. Reading it from a real topic is tested with the commands that write it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runtime.connection import Connection
from services.runtime.control import ALL_RUNS, Control


def told(*entries):
    control = Control(Connection("nowhere:9092"), "control")
    for offset, (run, value) in enumerate(entries):
        control._note(run.encode() if isinstance(run, str) else run, value, offset)
    return control


def test_nothing_said_means_running():
    control = told()
    assert not control.is_cancelled("r")
    assert not control.is_paused()
    assert control.policy_version("r") is None


def test_the_last_entry_of_a_run_counts():
    control = told(("r", b'{"state":"cancelled"}'), ("other", b'{"state":"cancelled"}'), ("r", b'{"state":"running"}'))
    assert not control.is_cancelled("r")
    assert control.is_cancelled("other")


def test_what_holds_for_all_holds_for_a_run_that_says_nothing_else():
    control = told((ALL_RUNS, b'{"state":"cancelled","policy_version":"7"}'), ("r", b'{"policy_version":"8"}'))
    assert control.is_cancelled("r")
    assert control.policy_version("r") == "8"
    assert control.policy_version("other") == "7"
    assert not told((ALL_RUNS, b'{"state":"cancelled"}'), ("r", b'{"state":"running"}')).is_cancelled("r")


def test_pausing_one_run_pauses_its_own_workers_only():
    control = told(("r", b'{"state":"paused"}'))
    assert not control.is_paused()
    assert control.is_paused("r")
    assert told((ALL_RUNS, b'{"state":"paused"}')).is_paused("r")


def test_a_tombstone_takes_an_entry_back():
    assert not told(("r", b'{"state":"cancelled"}'), ("r", None)).is_cancelled("r")
    assert not told(("r", None)).is_cancelled("r")


@pytest.mark.parametrize(
    "value",
    [b"", b"\xff", b"null", b"[]", b'"cancelled"', b'{"state":"dead"}', b'{"stat":"cancelled"}', b'{"state":1}', b"{" * 10_000],
    ids=lambda v: repr(v[:20]),
)
def test_what_is_no_entry_changes_nothing(value):
    control = told(("r", b'{"state":"cancelled"}'), ("r", value), (ALL_RUNS, value))
    assert control.is_cancelled("r")
    assert not control.is_cancelled("other")


@given(st.one_of(st.none(), st.binary(max_size=20)), st.one_of(st.none(), st.binary(max_size=40)))
def test_no_record_can_break_the_reading(key, value):
    control = told(("r", b'{"state":"cancelled"}'), (key, value))
    assert control.is_cancelled("r") or key == b"r"
