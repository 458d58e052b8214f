"""The databases: loaded once for each process and shared, and one rollout's view of them.

Owns the files' format and what travels in a rollout's state. Invariant: what is loaded is never written, and a rollout is only
ever continued on the very files it began with (`Base.digest`).
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from environments.workplace_assistant.table import BaseTable, Row, Table, comparable, equal
from schemas.errors import InfrastructureError

EMAILS = ("email_id", "inbox/outbox", "sender/recipient", "subject", "sent_datetime", "body")
EVENTS = ("event_id", "event_name", "participant_email", "event_start", "duration")
TASKS = ("task_id", "task_name", "assigned_to_email", "list_name", "due_date", "board")
CUSTOMERS = (
    "customer_id",
    "assigned_to_email",
    "customer_name",
    "customer_email",
    "customer_phone",
    "last_contact_date",
    "product_interest",
    "status",
    "follow_up_by",
    "notes",
)
VISITS = ("date_of_visit", "visitor_id", "page_views", "session_duration_seconds", "traffic_source", "user_engaged")

FILES: Mapping[str, tuple[str, ...]] = {
    "emails.csv": EMAILS,
    "calendar_events.csv": EVENTS,
    "project_tasks.csv": TASKS,
    "customer_relationship_manager_data.csv": CUSTOMERS,
    "analytics_data.csv": VISITS,
}
DIRECTORY = "email_addresses.csv"

MAX_FILE = 256 << 20
"""A file beyond this is a mistake: each worker process holds the databases in memory, at about five times their size."""

TABLES = ("emails", "events", "tasks", "customers")


@dataclass(frozen=True)
class Base:
    """The databases as loaded; `digest` tells one set of files from another."""

    emails: BaseTable
    events: BaseTable
    tasks: BaseTable
    customers: BaseTable
    visits: tuple[Row, ...]
    directory: tuple[str, ...]
    digest: str

    @classmethod
    def load(cls, folder: Path) -> Base:
        """The databases in a folder, or in its folder `csv`; from memory when the files have not changed since.

        Raises `InfrastructureError` that names the file which is missing or has other columns.
        """
        place = folder / "csv" if (folder / "csv").is_dir() else folder
        return _loaded(place, tuple(_stamp(place / name) for name in (*FILES, DIRECTORY)))


@dataclass
class Databases:
    """One rollout's databases. `numeric_durations`: the reference turns session lengths into numbers on the way."""

    base: Base
    emails: Table
    events: Table
    tasks: Table
    customers: Table
    plots: list[str] = field(default_factory=list)
    numeric_durations: bool = False

    @classmethod
    def of(cls, base: Base, changes: Mapping[str, Any] | None = None) -> Databases:
        """The databases with `changes`, as `changes()` gave them."""
        changes = changes or {}
        tables = {name: Table(getattr(base, name), changes.get(name)) for name in TABLES}
        return cls(
            base, **tables, plots=list(changes.get("plots", ())), numeric_durations=changes.get("numeric_durations", False)
        )

    def changes(self) -> dict[str, Any]:
        """What differs from the base, JSON-like; empty when nothing does."""
        tables = {name: getattr(self, name).changes() for name in TABLES}
        more = {"plots": self.plots, "numeric_durations": self.numeric_durations}
        return {name: value for name, value in {**tables, **more}.items() if value}

    def same_as(self, other: Databases, *, labels: bool = True) -> bool:
        """Whether the five tables that tools can change are equal; without `labels`, whether their rows are."""
        plots = [comparable(p) for p in self.plots] == [comparable(p) for p in other.plots]
        return plots and all(equal(getattr(self, t), getattr(other, t), labels=labels) for t in TABLES)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError as e:
        raise InfrastructureError(f"workplace_assistant: cannot read {path}: {e.strerror}", retryable=False) from e
    if status.st_size > MAX_FILE:
        raise InfrastructureError(f"workplace_assistant: {path} has more than {MAX_FILE >> 20} MiB", retryable=False)
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=4)
def _loaded(folder: Path, _stamps: tuple[tuple[int, int], ...]) -> Base:
    contents = {name: (folder / name).read_bytes() for name in (*FILES, DIRECTORY)}
    digest = hashlib.blake2b(digest_size=8)
    for name, data in contents.items():
        digest.update(f"{name} {len(data)} ".encode() + data)
    rows = {name: _rows(folder / name, contents[name], columns) for name, columns in FILES.items()}
    return Base(
        emails=BaseTable(EMAILS, rows["emails.csv"]),
        events=BaseTable(EVENTS, rows["calendar_events.csv"], renumbers=False),
        tasks=BaseTable(TASKS, rows["project_tasks.csv"]),
        customers=BaseTable(CUSTOMERS, rows["customer_relationship_manager_data.csv"]),
        visits=rows["analytics_data.csv"],
        directory=tuple(line for line in _text(folder / DIRECTORY, contents[DIRECTORY]).split("\n") if line),
        digest=digest.hexdigest(),
    )


def _rows(path: Path, data: bytes, columns: tuple[str, ...]) -> tuple[Row, ...]:
    """All cells are text; an empty one is missing (None)."""
    lines = csv.reader(io.StringIO(_text(path, data)))
    try:
        header, *rest = lines
    except (ValueError, csv.Error) as e:
        raise InfrastructureError(f"workplace_assistant: {path} is not a CSV file with a header: {e}", retryable=False) from e
    if tuple(header) != columns or any(len(line) != len(columns) for line in rest if line):
        raise InfrastructureError(f"workplace_assistant: {path} must have the columns {', '.join(columns)}", retryable=False)
    return tuple({column: cell or None for column, cell in zip(columns, line, strict=True)} for line in rest if line)


def _text(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as e:
        raise InfrastructureError(f"workplace_assistant: {path} is not UTF-8: {e}", retryable=False) from e
