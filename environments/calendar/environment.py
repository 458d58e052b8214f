"""A calendar kept through a conversation: 1.0 when the answer's list has every event within its constraints, else 0.0."""

from __future__ import annotations

from typing import Any

from environments.calendar.checking import fits
from environments.calendar.finding import listed_events
from environments.common.extras import require
from environments.environment import Context, Environment, Response, Reverify, Task, Verdict


class CalendarTask(Task):
    """The events that the calendar must have, by id.

    Each has `event_id`, `duration` (minutes), `constraint` (null or text), `min_time` and `max_time`.
    """

    exp_cal_state: dict[str, Any]


class Calendar(Environment):
    """Rewards a list that agrees with all that the user has said."""

    Task = CalendarTask
    reverify = Reverify.STATELESS

    def verify(self, task: CalendarTask, response: Response, state: Any, context: Context) -> Verdict:
        require("calendar", "re2")
        text = _answer(response)
        if not text or "<think>" in text:
            return Verdict(0.0)
        if not task.exp_cal_state:
            return Verdict(1.0)
        events = listed_events(text)
        return Verdict(1.0 if events and fits(events, task.exp_cal_state) else 0.0)


def _answer(response: Response) -> str:
    """Text of the first part of the last output item; empty when there is none."""
    content = response.output[-1].get("content") if response.output else None
    if isinstance(content, str):
        return content
    part = content[0] if isinstance(content, list) and content else None
    text = part.get("text") if isinstance(part, dict) else None
    return text if isinstance(text, str) else ""
