"""What the searching tools share: patterns that a model wrote, and pages of results.

Invariant: a search ends in bounded time, however bad the pattern.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from typing import Any

from environments.common.pattern_size import size_of
from environments.common.searches import SearchTimeoutError, compiled, matches
from environments.workplace_assistant.table import Row

TIME_LIMIT_S = 2.0
"""CPU time of one search over all cells; an honest one over the reference's tables takes a few milliseconds."""

_PLAIN = re.compile(r"[A-Za-z0-9 _@,:;'\"/-]*")
"""Patterns that mean what they say."""


def cell_filter(query: Any) -> Callable[[Any], bool]:
    """Whether a cell has a match of `query`, a case-insensitive regular expression.

    Raises for an expression that is invalid or too large (`OversizeError`). The function it returns raises `ValueError` for a
    cell that is no text, as the reference's data frame does, and when the search has taken too long.
    """
    if isinstance(query, str) and _PLAIN.fullmatch(query):
        wanted = query.lower()
        slow = _search(query)
        return lambda cell: wanted in cell.lower() if isinstance(cell, str) and cell.isascii() else slow(cell)
    return _search(query)


def _search(query: Any) -> Callable[[Any], bool]:
    if isinstance(query, str):
        size_of(query)  # raises before `re` has anything large to do
    re.compile(query)  # for its error
    pattern = compiled(query, re.IGNORECASE)
    if pattern is None:
        raise ValueError("the pattern cannot be searched for")
    end = time.thread_time() + TIME_LIMIT_S

    def found(cell: Any) -> bool:
        if not isinstance(cell, str):
            raise ValueError("Cannot mask with non-boolean array containing NA / NaN values")  # noqa: TRY004 - the reference's
        try:
            return next(matches(pattern, cell, end), None) is not None
        except SearchTimeoutError:
            raise ValueError("the search took too long; use a simpler pattern") from None

    return found


def page_of(rows: list[Row], name: str, page: Any, page_size: Any) -> dict[str, Any]:
    """A page of results under `name`, and where it stands among all of them."""
    if page_size == 0:
        raise ZeroDivisionError("integer division or modulo by zero")  # in these words in every Python
    pages = (len(rows) + page_size - 1) // page_size
    page = max(1, min(page, pages))
    start = (page - 1) * page_size
    shown = rows[start : min(start + page_size, len(rows))]
    return {
        name: shown,
        "pagination": {f"total_{name}": len(rows), "page": page, "page_size": page_size, "total_pages": pages},
    }


def narrowed(rows: Iterable[Row], column: str, query: Any) -> list[Row]:
    """The rows whose cell in `column` has a match of `query`; raises as `cell_filter` does."""
    fits = cell_filter(query)
    return [row for row in rows if fits(row[column])]
