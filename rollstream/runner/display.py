"""What a run shows: a bar on a terminal, a line now and then elsewhere, and the summary at the end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from rollstream.runner.watch import Watch
from rollstream.text import printable

_EVERY_S = 5.0
"""Between two lines when nobody watches a bar."""


class Display:
    """Shows the phases and the progress of a run on `console` (stderr)."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._said = 0.0

    def say(self, message: str) -> None:
        """A line, above the bar when there is one."""
        self.console.print(Text(printable(message)), soft_wrap=True)

    @contextmanager
    def progress(self, watch: Watch) -> Iterator[None]:
        """Show a bar while the run goes on."""
        self._said = time.monotonic()
        if not self.console.is_terminal:
            yield
            return
        columns = (SpinnerColumn(), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=self.console, transient=True) as bar:
            self._bar, self._task = bar, bar.add_task("", total=watch.expected)
            yield
        self._bar = None

    def update(self, watch: Watch) -> None:
        """Show how far the run is."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=watch.ended, total=watch.expected, description=_standing(watch))
        elif time.monotonic() - self._said >= _EVERY_S and watch.expected:
            self._said = time.monotonic()
            self.say(f"{watch.ended:,} of {watch.expected:,} rollouts: {_standing(watch)}")


def _standing(watch: Watch) -> str:
    failed = sum(watch.failures.values())
    reward = f", mean reward {watch.rewards / watch.scored:.3f}" if watch.scored else ""
    return f"{watch.scored + watch.scored_before:,} scored{reward}, {failed:,} failed"


def results_table(agents: Iterable[Mapping[str, Any]], environment_of: Mapping[str, str]) -> Table:
    """Environment, rollouts, mean reward and failures, from the run's aggregates (platform.md B12)."""
    table = Table()
    for name in ("environment", "rollouts", "mean reward", "failures"):
        table.add_column(name, justify="left" if name == "environment" else "right")
    for agent in agents:
        name = str(agent["agent_ref"]["name"])
        completeness = agent["completeness"]
        failed = sum(completeness["failed"].values())
        mean = agent["agent_metrics"].get("mean/reward")
        reward = "-" if mean is None else f"{mean:.3f}"
        rollouts = completeness["scored"] + failed
        table.add_row(Text(printable(environment_of.get(name, name))), f"{rollouts:,}", reward, f"{failed:,}")
    return table
