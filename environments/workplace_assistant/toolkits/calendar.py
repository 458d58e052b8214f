"""The calendar. Start and duration are checked and then kept as the model wrote them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from environments.workplace_assistant.databases import EVENTS
from environments.workplace_assistant.searching import cell_filter, page_of
from environments.workplace_assistant.table import Row
from environments.workplace_assistant.times import read_time
from environments.workplace_assistant.tooling import Argument, Page, PageSize, Toolkit, offered

_CHANGEABLE = EVENTS[1:]
_BAD_ID = "Invalid event ID format. Expected 8-digit ID."
_ID_LENGTH = 8

EventId = Annotated[Any, Argument("Id of the event, 8 digits", required=True)]


class CalendarTool(Toolkit):
    prefix = "calendar_"

    @offered()
    def get_event_information_by_id(
        self,
        event_id: EventId = None,
        field: Annotated[Any, Argument(f"What to tell of it: {', '.join(EVENTS)}", required=True)] = None,
    ) -> Any:
        """Tell one detail of an event."""
        if not event_id:
            return "Event ID not provided."
        if not field:
            return "Field not provided."
        if _bad_id(event_id):
            return _BAD_ID
        if field not in EVENTS:
            return f"Invalid field. Available fields are: {', '.join(EVENTS)}"
        places = self.databases.events.find(event_id)
        return {field: self.databases.events.row(places[0])[field]} if places else "Event not found."

    @offered()
    def search_events(
        self,
        query: Annotated[Any, Argument("Text to look for in names and participants")] = "",
        time_min: Annotated[Any, Argument("Earliest start, YYYY-MM-DD HH:MM:SS")] = None,
        time_max: Annotated[Any, Argument("Latest start, YYYY-MM-DD HH:MM:SS")] = None,
        page: Page = 1,
        page_size: PageSize = 5,
    ) -> Any:
        """Find events by text and by their start, the latest first."""
        for name, bound in (("time_min", time_min), ("time_max", time_max)):
            if bound and not self._readable(bound):
                return _bad_time(name)
        found = self._starting_between(self._with_text(query), time_min, time_max)
        if not found:
            return "No events found."
        found.sort(key=lambda row: str(row["event_start"]), reverse=True)  # equal starts keep their order
        return page_of(found, "events", page, page_size)

    @offered(changes=True)
    def create_event(
        self,
        event_name: Annotated[Any, Argument("Name of the event", required=True)] = None,
        participant_email: Annotated[Any, Argument("Address of the participant", required=True)] = None,
        event_start: Annotated[Any, Argument("Start, YYYY-MM-DD HH:MM:SS", required=True)] = None,
        duration: Annotated[Any, Argument("Minutes", required=True)] = None,
    ) -> Any:
        """Put an event into the calendar."""
        given = {
            "name": event_name,
            "Participant": participant_email,
            "start": event_start,
            "duration": duration,
        }
        missing = next((what for what, value in given.items() if not value), None)
        if missing:
            return "Participant email not provided." if missing == "Participant" else f"Event {missing} not provided."
        wrong = self._wrong_time("event_start", event_start) or _wrong_duration(duration)
        if wrong:
            return wrong
        event_id = str(self.databases.events.next_id()).zfill(_ID_LENGTH)
        cells = (event_id, event_name, participant_email.lower(), event_start, duration)
        self.databases.events.append(dict(zip(EVENTS, cells, strict=True)))
        return event_id

    @offered(changes=True)
    def delete_event(self, event_id: EventId = None) -> Any:
        """Take an event out of the calendar."""
        if not event_id:
            return "Event ID not provided."
        if _bad_id(event_id):
            return _BAD_ID
        places = self.databases.events.find(event_id)
        self.databases.events.delete(places)
        return "Event deleted successfully." if places else "Event not found."

    @offered(changes=True)
    def update_event(
        self,
        event_id: EventId = None,
        field: Annotated[Any, Argument(f"What to change: {', '.join(_CHANGEABLE)}", required=True)] = None,
        new_value: Annotated[Any, Argument("Its new value", required=True)] = None,
    ) -> Any:
        """Change one detail of an event."""
        if not event_id or not field or not new_value:
            return "Event ID, field, or new value not provided."
        if _bad_id(event_id):
            return _BAD_ID
        if field not in _CHANGEABLE:
            return f"Invalid field. Available fields are: {', '.join(_CHANGEABLE)}"
        wrong = self._wrong_value(field, new_value)
        if wrong:
            return wrong
        places = self.databases.events.find(event_id)
        if not places:
            return "Event not found."
        self.databases.events.write(places, field, new_value.lower() if field == "participant_email" else new_value)
        return "Event updated successfully."

    def _wrong_value(self, field: str, value: Any) -> str | None:
        if field == "event_start":
            return self._wrong_time("event_start", value)
        return _wrong_duration(value) if field == "duration" else None

    def _with_text(self, query: Any) -> list[Row]:
        fits = cell_filter(query)
        rows = [row for _, row in self.databases.events.rows()]
        return [row for row in rows if fits(row["event_name"]) or fits(row["participant_email"])]

    def _starting_between(self, events: list[Row], first: Any, last: Any) -> list[Row]:
        if first:
            events = [row for row in events if self._ordered(first, row["event_start"])]
        if last:
            events = [row for row in events if self._ordered(row["event_start"], last)]
        return events

    def _ordered(self, earlier: Any, later: Any) -> bool:
        """Whether both are times, in this order; raises `TypeError` when one of them has a zone."""
        one, other = read_time(earlier, self.now), read_time(later, self.now)
        return isinstance(one, datetime) and isinstance(other, datetime) and one <= other

    def _readable(self, time: Any) -> bool:
        try:
            read_time(time, self.now)
        except ValueError:
            return False
        return True

    def _wrong_time(self, name: str, value: Any) -> str | None:
        return None if self._readable(value) else _bad_time(name)


def _bad_time(name: str) -> str:
    return f"Invalid {name} format. Expected YYYY-MM-DD HH:MM:SS."


def _bad_id(event_id: Any) -> bool:
    return not (isinstance(event_id, str) and len(event_id) == _ID_LENGTH and event_id.isdigit())


def _wrong_duration(value: Any) -> str | None:
    """Minutes must be what `int` takes, and more than none; a fraction is cut off by it, a text with one refused."""
    try:
        minutes = int(value)
    except (ValueError, TypeError, OverflowError):
        return "Invalid duration format. Expected a number of minutes."
    return None if minutes > 0 else "Duration must be a positive number of minutes."
