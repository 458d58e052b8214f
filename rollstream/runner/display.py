"""What a run shows: a bar on a terminal, a line now and then elsewhere, and the summary at the end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from rollstream.runner.watch import Watch
from rollstream.text import printable

_LAST_STEP = 99.5
"""Beside the whole percents, the last rollouts being those that are waited for (platform.md B2)."""

EMPTY: Mapping[str, int] = MappingProxyType({})

_AGENTS, _FIELDS = 8, 6
"""Agents and fields that one line of progress names."""


class Display:
    """Shows the phases and the progress of a run on `console` (stderr)."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._step = 0.0
        self._began = 0.0
        self._before = 0

    def say(self, message: str) -> None:
        """A line, above the bar when there is one."""
        self.console.print(Text(printable(message)), soft_wrap=True)

    @contextmanager
    def progress(self, watch: Watch) -> Iterator[None]:
        """Show a bar while the run goes on."""
        self._began, self._before = time.monotonic(), watch.ended
        self._step = _step(watch)
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
        elif _step(watch) > self._step:
            self._step = _step(watch)
            self.say(progress_line(watch, time.monotonic() - self._began, self._before))


def progress_line(watch: Watch, elapsed_s: float, before: int = 0) -> str:
    """How far a run is after `elapsed_s` seconds, `before` of its rollouts having ended in an earlier one (B2)."""
    rate = 60 * (watch.ended - before) / elapsed_s if elapsed_s > 0 else 0.0
    elapsed = timedelta(seconds=round(elapsed_s))
    line = f"{watch.ended:,} of {watch.expected:,} rollouts: {_standing(watch)}; {elapsed} elapsed, {rate:,.1f} a minute"
    for agent, left in list(watch.left.items())[:_AGENTS]:
        means = ", ".join(f"{name} {mean:.3g}" for name, mean in list(watch.averages.of(agent).items())[:_FIELDS])
        line += f"; {agent}: {left:,} left{f', mean {means}' if means else ''}"
    return line + (" (means of a sample)" if watch.averages.sampled else "")


def _step(watch: Watch) -> float:
    """The last step that is behind: a whole percent, or 99.5."""
    percent = 100.0 * watch.ended / watch.expected if watch.expected else 0.0
    return _LAST_STEP if _LAST_STEP <= percent < 100.0 else float(int(percent))  # noqa: PLR2004 - percent


def _standing(watch: Watch) -> str:
    failed = sum(watch.failures.values())
    reward = f", mean reward {watch.rewards / watch.scored:.3f}" if watch.scored else ""
    return f"{watch.scored + watch.scored_before:,} scored{reward}, {failed:,} failed"


def results_table(
    agents: Iterable[Mapping[str, Any]], environment_of: Mapping[str, str], refused: Mapping[str, int] = EMPTY
) -> Table:
    """Environment, rollouts, mean reward and failures, from the run's aggregates (platform.md B12).

    Each of the `refused` rows, by agent, counts as a rollout that failed.
    """
    table = Table()
    for name in ("environment", "rollouts", "mean reward", "failures"):
        table.add_column(name, justify="left" if name == "environment" else "right")
    rows = [(str(a["agent_ref"]["name"]), a["completeness"], a["agent_metrics"].get("mean/reward")) for a in agents]
    known = {name for name, _, _ in rows}
    rows += [(name, {"scored": 0, "failed": {}}, None) for name in refused if name not in known]
    for name, completeness, mean in rows:
        failed = sum(completeness["failed"].values()) + refused.get(name, 0)
        reward = "-" if mean is None else f"{mean:.3f}"
        rollouts = completeness["scored"] + failed
        table.add_row(Text(printable(environment_of.get(name, name))), f"{rollouts:,}", reward, f"{failed:,}")
    return table
