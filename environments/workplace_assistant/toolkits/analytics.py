"""Visits of the website, and plots of them: a plot is only the path where the reference would have drawn it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from environments.workplace_assistant.table import Row
from environments.workplace_assistant.tooling import Argument, Toolkit, offered

VALUES = (
    "total_visits",
    "session_duration_seconds",
    "user_engaged",
    "visits_direct",
    "visits_referral",
    "visits_search_engine",
    "visits_social_media",
)
PLOTS = ("bar", "line", "scatter", "histogram")

TimeMin = Annotated[Any, Argument("First day, YYYY-MM-DD")]
TimeMax = Annotated[Any, Argument("Last day, YYYY-MM-DD")]
Start = Annotated[Any, Argument("First day, YYYY-MM-DD", required=True)]
End = Annotated[Any, Argument("Last day, YYYY-MM-DD", required=True)]


class AnalyticsTool(Toolkit):
    prefix = "analytics_"

    @offered()
    def get_visitor_information_by_id(
        self, visitor_id: Annotated[Any, Argument("Id of the visitor", required=True)] = None
    ) -> Any:
        """Tell all visits of a visitor."""
        if not visitor_id:
            return "Visitor ID not provided."
        found = [self._shown(row) for row in self.databases.base.visits if row["visitor_id"] == visitor_id]
        return found or "Visitor not found."

    @offered(changes=True)
    def create_plot(
        self,
        time_min: Start = None,
        time_max: End = None,
        value_to_plot: Annotated[Any, Argument(f"One of {', '.join(VALUES)}", required=True)] = None,
        plot_type: Annotated[Any, Argument(f"One of {', '.join(PLOTS)}", required=True)] = None,
    ) -> Any:
        """Plot a value over some days; answers where the plot lies."""
        if not time_min:
            return "Start date not provided."
        if not time_max:
            return "End date not provided."
        if value_to_plot not in VALUES:
            return f"Value to plot must be one of {', '.join(map(repr, VALUES))}"
        if plot_type not in PLOTS:
            return f"Plot type must be one of {', '.join(map(repr, PLOTS[:-1]))}, or {PLOTS[-1]!r}"
        path = f"plots/{time_min}_{time_max}_{value_to_plot}_{plot_type}.png"
        self.databases.plots.append(path)
        return path

    @offered()
    def total_visits_count(self, time_min: TimeMin = None, time_max: TimeMax = None) -> Any:
        """Count the visits of each day."""
        return self._by_day(time_min, time_max, len)

    @offered()
    def engaged_users_count(self, time_min: TimeMin = None, time_max: TimeMax = None) -> Any:
        """Count the visits of each day whose visitor did something."""
        return self._by_day(time_min, time_max, lambda rows: sum(row["user_engaged"] == "True" for row in rows))

    @offered()
    def traffic_source_count(
        self,
        time_min: TimeMin = None,
        time_max: TimeMax = None,
        traffic_source: Annotated[Any, Argument("direct, referral, search engine or social media; all when left out")] = None,
    ) -> Any:
        """Count the visits of each day that came from one source."""
        if not traffic_source:
            return self._by_day(time_min, time_max, len)
        return self._by_day(time_min, time_max, lambda rows: sum(row["traffic_source"] == traffic_source for row in rows))

    @offered()
    def get_average_session_duration(self, time_min: TimeMin = None, time_max: TimeMax = None) -> Any:
        """Tell the mean length of the visits of each day, in seconds."""
        if not time_min and not time_max:
            self.databases.numeric_durations = True  # the reference converts the column in place, and later replies show it
        return self._by_day(time_min, time_max, _mean_duration)

    def _shown(self, row: Row) -> dict[str, Any]:
        seconds = row["session_duration_seconds"]
        if self.databases.numeric_durations and seconds is not None:
            seconds = float(seconds)
        return {**row, "session_duration_seconds": seconds, "user_engaged": row["user_engaged"] == "True"}

    def _by_day(self, first: Any, last: Any, value: Callable[[list[Row]], Any]) -> dict[str, Any]:
        days: dict[str, list[Row]] = {}
        for row in self.databases.base.visits:
            day = row["date_of_visit"]
            if (not first or day >= first) and (not last or day <= last):
                days.setdefault(day, []).append(row)
        return {day: value(days[day]) for day in sorted(days)}


def _mean_duration(rows: list[Row]) -> float:
    return sum(float(row["session_duration_seconds"]) for row in rows) / len(rows)
