"""A table that many rollouts share, and what one rollout has changed in it.

Owns rows, their identity and their labels. Invariant: the shared rows are never written; a `Table` holds only the differences,
so opening one costs as much as it has changed, whatever the size of the table, and the differences are all that travels.

Every row has a place: its number in the file, and the numbers after those for rows that were appended. Places are never given
twice. A row's label is what the reference's data frame calls it, and two tables are equal only when their labels are
(workplace_assistant.md, "Equality of a table").
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

Row = Mapping[str, Any]

AS_THEY_ARE = frozenset({"status", "list_name", "board"})
"""Columns whose cells are compared as they are; in all others text is compared without case and all else is "missing"."""


@dataclass(frozen=True)
class BaseTable:
    """The rows as loaded. `renumbers`: appending gives all rows new labels 0, 1, 2, …; otherwise the new row gets label 0."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    renumbers: bool = True

    @property
    def key(self) -> str:
        """The column with the id."""
        return self.columns[0]

    @cached_property
    def places(self) -> Mapping[Any, tuple[int, ...]]:
        """Where each id stands."""
        found: dict[Any, tuple[int, ...]] = {}
        for place, row in enumerate(self.rows):
            found[row[self.key]] = (*found.get(row[self.key], ()), place)
        return found

    @cached_property
    def ids(self) -> Sequence[str]:
        """The ids in the order of text."""
        return sorted(i for i in self.places if isinstance(i, str))


class Table:
    """A base table with one rollout's changes."""

    def __init__(self, base: BaseTable, changes: Mapping[str, Any] | None = None) -> None:
        changes = changes or {}
        self.base = base
        self._rows: dict[int, Row | None] = {}  # what differs, by place; None is deleted
        self._moved: dict[Any, list[int]] = {}  # places of ids that are not where the base has them
        self._odd_ids: list[int] = []  # places of ids that are no text
        self._new_ids: list[str] = []  # sorted ids of appended and renamed rows, of which some may be gone
        self._end: int = changes.get("end", len(base.rows))
        self._stale: set[int] = set(changes.get("stale", ()))  # deleted since all rows were labelled anew
        self._largest = len(base.ids)  # base ids from here on are all gone
        for place, cells in changes.get("rows", {}).items():
            self._restore(int(place), cells)

    @property
    def changed(self) -> bool:
        return bool(self._rows) or self._end != len(self.base.rows)

    @property
    def written(self) -> set[int]:
        """Places of the rows that were written or appended and are still there."""
        return {place for place, row in self._rows.items() if row is not None}

    def aligned_with(self, other: Table) -> bool:
        """Whether rows at the same places, and so under the same labels, are all that there is in both (a quick test)."""
        gone, theirs = self._rows.keys() - self.written, other._rows.keys() - other.written
        return self._end == other._end and self._stale == other._stale and gone == theirs

    def changes(self) -> dict[str, Any]:
        """What differs from the base, as JSON-like data for the constructor; empty when nothing does.

        Of a row that the base has, only the cells that differ; of an appended row that was deleted, nothing.
        """
        if not self.changed:
            return {}
        kept = {p: r for p, r in self._rows.items() if r is not None or p < len(self.base.rows)}
        return {"rows": {str(p): self._cells(p, r) for p, r in kept.items()}, "end": self._end, "stale": sorted(self._stale)}

    def rows(self) -> Iterator[tuple[int, Row]]:
        """Every row with its place, in order."""
        for place, row in enumerate(self.base.rows):
            now = self._rows.get(place, row) if self._rows else row
            if now is not None:
                yield place, now
        for place in range(len(self.base.rows), self._end):
            now = self._rows.get(place)
            if now is not None:
                yield place, now

    def find(self, wanted: Any) -> list[int]:
        """Places of the rows with this id. Raises `ValueError` for a list, as the reference's data frame does."""
        if isinstance(wanted, list):
            raise ValueError("('Lengths must match to compare')")  # noqa: TRY004 - what the model reads is the reference's
        if not isinstance(wanted, str):
            return [p for p in self._odd_ids if self.row(p)[self.base.key] == wanted]
        there = (p for p in self.base.places.get(wanted, ()) if self._holds(p, wanted))
        return sorted({*there, *(p for p in self._moved.get(wanted, ()) if self._holds(p, wanted))})

    def row(self, place: int) -> Row:
        """The row at a place that `find` or `rows` gave."""
        row = self._rows[place] if place in self._rows else self.base.rows[place]
        if row is None:
            raise KeyError(place)
        return row

    def append(self, row: Row) -> None:
        """Add a row at the end."""
        place, self._end = self._end, self._end + 1
        self._put(place, row)
        if self.base.renumbers:
            self._stale.clear()

    def delete(self, places: Sequence[int]) -> None:
        """Remove rows."""
        for place in places:
            self._forget(place)
            self._rows[place] = None
            self._stale.add(place)

    def write(self, places: Sequence[int], column: str, value: Any) -> None:
        """Set a cell in each of these rows. Lists are spread over the rows and objects are lost, as in a data frame.

        Raises `ValueError` for a list of another length.
        """
        if isinstance(value, list) and len(value) != len(places):
            raise ValueError("setting an array element with a sequence.")
        values = value if isinstance(value, list) else [None if isinstance(value, dict) else value] * len(places)
        for place, cell in zip(places, values, strict=True):
            row = {**self.row(place), column: cell}
            self._forget(place)
            self._put(place, row)

    def next_id(self) -> int:
        """One more than the largest id, largest as text. Raises `TypeError` or `ValueError` when there is no such number."""
        if self._odd_ids:
            raise TypeError("an id of this table is no text, so none is the largest")
        while self._largest and not self.find(self.base.ids[self._largest - 1]):
            self._largest -= 1
        while self._new_ids and not self.find(self._new_ids[-1]):
            self._new_ids.pop()
        largest = [*self.base.ids[self._largest - 1 : self._largest], *self._new_ids[-1:]]
        if not largest:
            raise ValueError("the table is empty, so no id is the largest")
        return int(max(largest)) + 1

    def labels(self) -> list[int]:
        """The label of every row, in the order of `rows`."""
        alive = [place for place, _ in self.rows()]
        if not self.base.renumbers:
            return [p if p < len(self.base.rows) else 0 for p in alive]
        counted = {place: label for label, place in enumerate(sorted({*alive, *self._stale}))}
        return [counted[p] for p in alive]

    def _cells(self, place: int, row: Row | None) -> Row | None:
        if row is None or place >= len(self.base.rows):
            return row
        old = self.base.rows[place]
        return {column: cell for column, cell in row.items() if cell is not old[column]}

    def _restore(self, place: int, cells: Row | None) -> None:
        if cells is None:
            self._rows[place] = None
        else:
            self._put(place, {**self.base.rows[place], **cells} if place < len(self.base.rows) else cells)

    def _holds(self, place: int, wanted: str) -> bool:
        row = self._rows[place] if place in self._rows else self.base.rows[place]
        return row is not None and row[self.base.key] == wanted

    def _put(self, place: int, row: Row) -> None:
        self._rows[place] = row
        name = row[self.base.key]
        if not isinstance(name, str):
            self._odd_ids.append(place)
        elif place not in self.base.places.get(name, ()):
            self._moved.setdefault(name, []).append(place)
            bisect.insort(self._new_ids, name)
        elif bisect.bisect(self.base.ids, name) > self._largest:
            bisect.insort(self._new_ids, name)  # an id of the base that was away has come back

    def _forget(self, place: int) -> None:
        name = self.row(place)[self.base.key]
        if not isinstance(name, str):
            self._odd_ids.remove(place)
        elif place in self._moved.get(name, ()):
            self._moved[name].remove(place)


def equal(one: Table, other: Table, *, labels: bool = True) -> bool:
    """Whether two tables over one base have equal rows in the same order, and under equal labels if that matters."""
    if not one.changed and not other.changed:
        return True
    if one.aligned_with(other):
        return all(_equal_rows(one.row(p), other.row(p)) for p in one.written | other.written)
    ours, theirs = [r for _, r in one.rows()], [r for _, r in other.rows()]
    if len(ours) != len(theirs) or (labels and one.labels() != other.labels()):
        return False
    return all(a is b or _equal_rows(a, b) for a, b in zip(ours, theirs, strict=True))


def _equal_rows(one: Row, other: Row) -> bool:
    return all(_equal_cells(column, cell, other[column]) for column, cell in one.items())


def _equal_cells(column: str, one: Any, other: Any) -> bool:
    if column in AS_THEY_ARE:
        return bool(one is other or one == other or (one != one and other != other))  # noqa: PLR0124 - NaN
    return comparable(one) == comparable(other)


def comparable(cell: Any) -> str | None:
    """A cell as it is compared: text without case, everything else missing."""
    return cell.lower() if isinstance(cell, str) else None
