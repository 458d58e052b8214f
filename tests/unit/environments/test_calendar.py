"""calendar: the list is found as the reference finds it, overlaps against comparing all pairs, and time on hostile answers."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.calendar.checking import _overlap, fits, minutes
from environments.calendar.environment import Calendar
from environments.calendar.finding import EXPRESSION, _pattern, listed_events
from environments.testing import EnvironmentHarness, response

BRACKETS = st.text(alphabet='[]{}a,"é', max_size=16)


def verify(text: str, state: dict[str, Any]) -> float:
    harness = EnvironmentHarness(Calendar())
    harness.seed({"responses_create_params": {"input": "?"}, "exp_cal_state": state})
    return harness.verify(response(text)).reward


def event(number: int, start: str, duration: Any = 30) -> dict[str, Any]:
    return {"event_id": number, "start_time": start, "duration": duration}


def expected(number: int, duration: int = 30, constraint: str | None = None) -> dict[str, Any]:
    return {"event_id": number, "duration": duration, "constraint": constraint, "min_time": "10:00", "max_time": "16:00"}


@given(BRACKETS)
def test_the_automaton_finds_what_a_backtracking_matcher_finds(text):
    wanted = re.search(EXPRESSION, text)  # of 16 characters at most
    found = _pattern().search(text.encode())
    assert (found and found.group().decode()) == (wanted and wanted.group())


@given(st.text())
def test_whatever_is_written_is_scored(text):
    assert isinstance(listed_events(text), list)
    assert verify(text, {"0": expected(0)}) == 0.0


TIMES = st.integers(0, 8).map(lambda q: f"{10 + q // 4}:{q % 4 * 15:02d}")


@given(st.lists(st.builds(event, st.integers(0, 3), TIMES, st.sampled_from([-15, 0, 15, 30, 60])), max_size=5))
def test_overlaps_are_those_of_comparing_all_pairs(events):
    def apart(one: dict[str, Any], other: dict[str, Any]) -> bool:
        a, b = minutes(one["start_time"]), minutes(other["start_time"])
        return a + one["duration"] <= b or a >= b + other["duration"]

    pairwise = any(one != other and not apart(one, other) for one in events for other in events)
    assert _overlap(events) == pairwise


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("13:45", 825),
        ("1:45pm", 825),
        (" 1pm ", 780),
        ("12am", 0),
        ("12:30pm", 750),
        ("10:75", 675),
        ("14:00pm", 1560),
        ("10: 5", 605),
    ],
)
def test_times(text, wanted):
    assert minutes(text) == wanted


@pytest.mark.parametrize("text", ["10", "10:00:00", "10:00 AM", "noon", "", "1:2:3pm", "am"])
def test_what_is_no_time(text):
    with pytest.raises(ValueError):
        minutes(text)


@pytest.mark.parametrize(
    ("constraint", "start", "ok"),
    [
        ("before 11am", "10:30", True),
        ("before 11am", "10:31", False),
        ("after 11am", "11:00", True),
        ("after 11am", "10:59", False),
        ("at 11am", "11:00", True),
        ("at 11am", "11:01", False),
        ("between 11am and 12pm", "11:30", True),
        ("between 11am and 12pm", "11:31", False),
        ("between 11am and 12pm and 1pm", "11:00", False),
        ("Before 11am", "12:00", True),
        ("at noon", "12:00", False),
        ("at", "12:00", True),
        (5, "12:00", False),
    ],
)
def test_constraints(constraint, start, ok):
    assert fits([event(0, start)], {"0": expected(0, constraint=constraint)}) is ok


@pytest.mark.parametrize(
    "wrong", [None, "x", 5, [], {}, {"event_id": 0}, event(0, "10:00", "30"), event(0, "10:00", float("nan"))]
)
def test_an_error_is_no_match(wrong):
    assert not fits([wrong], {"0": expected(0)})
    assert not fits([event(0, "10:00")], {"0": wrong if wrong is None or not isinstance(wrong, dict) else {}})


def test_a_megabyte_is_scored_in_bounded_time():
    state = {"0": expected(0)}
    many = [event(0, f"{10 + i // 60}:{i % 60:02d}", 0.001) for i in range(15_000)]
    start = time.thread_time()
    assert verify(json.dumps(many)[:-1], state) == 0.0
    assert verify(json.dumps(many), state) == 0.0
    assert verify(json.dumps([event(0, "10:00")] * 15_000), state) == 1.0
    for unit in ("[{", "{[", "[{}", "{", "[", "}]", "[{},"):
        assert verify(unit * (1_000_000 // len(unit)), state) == 0.0
    assert time.thread_time() - start < 15
