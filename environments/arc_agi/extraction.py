"""Reading a grid from an answer: the first boxed array of arrays, else the first bare one.

Invariant: time is linear in the text. The reference's patterns are not, so they are taken apart here: all characters of a
match belong to one alphabet, hence a match lies within one run of it, and a run has one match at most.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

Grid = list[list[int]]

_RUN = re.compile(r"[\d\s,\[\]]++")
_BOX = re.compile(r"\\boxed\{([\d\s,\[\]]++)\}")
_OPENING = re.compile(r"\[\s*\[")
_CLOSING = re.compile(r"\](?=\s*(\]))")


def grid_of(text: str) -> Grid | None:
    """The first candidate that is a grid. Boxes count alone when there is any, even if none holds a grid."""
    boxed = [run for run in (found[1] for found in _BOX.finditer(text)) if _array_in(run) == run]
    candidates = boxed or (array for found in _RUN.finditer(text) if (array := _array_in(found[0])))
    return next(_grids(candidates), None)


def _array_in(run: str) -> str | None:
    """From the first `[[` to the last `]]` (blanks between the two allowed), with something between."""
    opening = _OPENING.search(run)
    closing = None
    for closing in _CLOSING.finditer(run):  # noqa: B007 - the last one is what is wanted
        pass
    if opening is None or closing is None or opening.end() >= closing.start():
        return None
    return run[opening.start() : closing.end(1)]


def _grids(candidates: list[str] | Iterator[str]) -> Iterator[Grid]:
    for text in candidates:
        try:
            value = json.loads("".join(text.split()))
        except (ValueError, RecursionError):
            continue
        if _is_grid(value):
            yield value


def _is_grid(value: object) -> bool:
    rows = value if isinstance(value, list) else []
    return bool(rows) and bool(rows[0]) and all(isinstance(r, list) and all(type(c) is int for c in r) for r in rows)
