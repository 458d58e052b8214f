"""Checking a list of events against what is expected.

Invariant: an error of any kind (a missing key, a wrong type, a time that cannot be read) means that the list does not fit, and
the time is that of sorting the list.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any


def fits(events: Sequence[Any], expected: Mapping[str, Any]) -> bool:
    """Whether the events are the expected ones, none overlaps another, and each keeps within its bounds and constraint."""
    try:
        by_id = {str(event["event_id"]): event for event in events}
        if len(by_id) != len(expected) or _overlap(events):
            return False
        return all(_in_place(by_id[name], wanted) for name, wanted in expected.items())
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return False


def minutes(text: str) -> int:
    """Minutes since midnight of `13:45`, `1:45pm` or `1pm`.

    Nothing is checked for range: `10:75` is 11:15 and `14:00pm` 26:00. Raises `ValueError` or `AttributeError`.
    """
    text = text.strip()
    half = next((half for half in ("am", "pm") if half in text), None)
    if half is None:
        hour, minute = text.split(":")
        return 60 * int(hour) + int(minute)
    clock = text.replace(half, "")
    hour, minute = clock.split(":") if ":" in clock else (clock, "0")
    hours = 0 if int(hour) == 12 else int(hour)  # noqa: PLR2004 - noon and midnight
    return 60 * hours + int(minute) + (720 if half == "pm" else 0)


def _overlap(events: Sequence[Any]) -> bool:
    """Whether two events that are not equal overlap.

    Equal entries are one event. Events that take no time, or less, overlap only one that they lie inside of.
    """
    spans: dict[tuple[float, float], Any] = {}
    for event in events:
        start = minutes(event["start_time"])
        end = start + event["duration"]
        if not math.isfinite(end):
            return len(events) > 1
        other = spans.setdefault((start, end), event)
        if other != event and end > start:
            return True
    taken = sorted(span for span in spans if span[1] > span[0])
    if any(end > start for (_, end), (start, _) in pairwise(taken)):
        return True
    return any(_inside(span, taken) for span in spans if span[1] <= span[0])


def _inside(span: tuple[float, float], taken: Sequence[tuple[float, float]]) -> bool:
    start, end = span
    before = bisect_left(taken, (end, -math.inf)) - 1  # the last one that begins earlier
    return before >= 0 and start < taken[before][1]


def _in_place(event: Any, wanted: Any) -> bool:
    start = minutes(event["start_time"])
    end = start + event["duration"]
    within = start >= minutes(wanted["min_time"]) and end <= minutes(wanted["max_time"])
    return bool(event["duration"] == wanted["duration"] and within and _keeps(wanted["constraint"], start, end))


def _keeps(constraint: str | None, start: float, end: float) -> bool:
    """Whether a span keeps a constraint; one in unknown words is kept by every span."""
    if constraint is None:
        return True
    word, _, rest = constraint.partition(" ")
    if word == "between":
        first, last = rest.split(" and ")
        return start >= minutes(first) and end <= minutes(last)
    checks = {
        "before": lambda: end <= minutes(rest),
        "after": lambda: start >= minutes(rest),
        "at": lambda: start == minutes(rest),
    }
    return checks[word]() if rest and word in checks else True
