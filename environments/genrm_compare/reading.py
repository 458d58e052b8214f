"""The verdict in a judge's reply: an object with `score_1`, `score_2` and `ranking` (genrm_compare.md, "Judge reply").

Invariant: any text gives a verdict or None, in time linear in its length.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

KEYS = ("score_1", "score_2", "ranking")

_FENCED = re.compile(r"```json(.*?)```", re.DOTALL | re.IGNORECASE)
_TOKENS = re.compile(r'["\\{}]')


def verdict_in(text: str) -> dict[str, float] | None:
    """The keys that the reply gives, as finite numbers; at least one.

    The first object of the blocks fenced as JSON counts, otherwise the last of the whole text.
    """
    if not _may_hold_a_key(text):
        return None
    for block in _FENCED.finditer(text):
        for found in map(_verdict, balanced_objects(block[1])):
            if found is not None:
                return found
    last = None
    for stretch in balanced_objects(text):
        last = _verdict(stretch) or last
    return last


def balanced_objects(text: str) -> Iterator[str]:
    """Stretches from an opening brace to the one that closes it, in order and none inside another.

    Braces inside strings do not count. An opening brace that is never closed is passed over.
    """
    end = text.rfind("}") + 1
    places = [m.start() for m in _TOKENS.finditer(text, 0, end)]
    marks = "".join(_TOKENS.findall(text, 0, end))
    closing = _closing(places, marks)
    k = 0
    while k < len(marks):
        close = closing[k + 1] if marks[k] == "{" else None
        if close is None:
            k += 1
        else:
            yield text[places[k] : places[close] + 1]
            k = close + 1


def _closing(places: list[int], marks: str) -> list[int | None]:
    """For each mark: which one closes the level on which it stands, when no string is open before it; None if nothing does.

    Computed from the end: what follows a mark is the same for all braces before it.
    """
    count = len(marks)
    outside: list[int | None] = [None] * (count + 2)
    inside: list[int | None] = [None] * (count + 2)
    for k in range(count - 1, -1, -1):
        mark = marks[k]
        if mark == "\\":
            escapes_mark = k + 1 < count and places[k + 1] == places[k] + 1
            outside[k], inside[k] = outside[k + 1], inside[k + 2 if escapes_mark else k + 1]
        elif mark == '"':
            outside[k], inside[k] = inside[k + 1], outside[k + 1]
        else:
            inside[k] = inside[k + 1]
            deeper = outside[k + 1]
            outside[k] = k if mark == "}" else None if deeper is None else outside[deeper + 1]
    return outside


def _verdict(text: str) -> dict[str, float] | None:
    if not _may_hold_a_key(text):
        return None  # most objects of a long reply; parsing each would take ten times as long
    try:
        value = json.loads(text)
        if isinstance(value, dict) and isinstance(value.get("overall"), dict):
            value = value["overall"]
        return _numbers(value) if isinstance(value, dict) else None
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None


def _may_hold_a_key(text: str) -> bool:
    return any(key in text for key in KEYS) or "\\" in text  # which may spell any letter


def _numbers(value: Mapping[str, Any]) -> dict[str, float] | None:
    """Raises `ValueError` or `TypeError` for a value that is no finite number."""
    found = {key: float(value[key]) for key in KEYS if key in value}
    if not all(math.isfinite(number) for number in found.values()):
        raise ValueError("not finite")
    return found or None
