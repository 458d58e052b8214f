"""When an output or a value is right (code_gen.md, "Execution").

Runs in the checker, which knows the expected outputs; nothing here is trusted to the process that runs the program.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

SHOWN = 300
"""Characters of an input or output in the metadata: the first half, a marker, the last half."""

MARKER = " ...[cut]... "

_RELATIVE, _ABSOLUTE = 1e-5, 1e-8  # numpy.allclose


def cut(text: str, length: int = SHOWN) -> str:
    """`text`, or its two ends when it is longer than `length`."""
    half = length // 2
    return text if len(text) <= length else f"{text[:half]}{MARKER}{text[-half:]}"


def wrong_output(got: str, wanted: str) -> str | None:
    """Why a program's output is not the expected one, in the reference's words; None when it is."""
    ours, theirs = _lines(got), _lines(wanted)
    if len(ours) != len(theirs):
        return "Wrong answer: mismatched output length"
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a != b and not _same_numbers(a, b):
            return f"Wrong answer at output_line_idx={i}: {cut(a)} != {cut(b)}"
    return None


def same_value(answer: Mapping[str, Any], wanted: Any, *, claimed: bool = False) -> bool:
    """Whether a returned value is right: equal, of the same JSON text, or close as a float.

    `answer` describes the value as `running.describe` does. `claimed`: the value, which is no plain JSON, says itself that
    it is equal.
    """
    text, number = answer.get("text"), answer.get("number")
    if claimed or (isinstance(text, str) and text == json.dumps(wanted)):
        return True
    if answer.get("kind") == "plain" and _parsed(text) == (True, wanted):
        return True
    return isinstance(number, float) and _close(number, wanted)


def same_plain_value(answer: Mapping[str, Any], wanted: Any) -> bool:
    """As `same_value`, with values of foreign types taken for the JSON they stand for, whatever they say of themselves."""
    texts = (answer.get("text"), answer.get("loose"))
    return same_value(answer, wanted) or any(_parsed(t) == (True, wanted) for t in texts if answer.get("kind") == "foreign")


def _parsed(text: Any) -> tuple[bool, Any]:
    try:
        return (True, json.loads(text)) if isinstance(text, str) else (False, None)
    except (ValueError, RecursionError):
        return False, None


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


def _same_numbers(a: str, b: str) -> bool:
    try:
        return [Decimal(word) for word in a.split()] == [Decimal(word) for word in b.split()]
    except (InvalidOperation, ValueError):  # a word that is no number, or a signalling NaN
        return False


def _close(number: float, wanted: Any) -> bool:
    try:
        other = float(wanted)
    except (TypeError, ValueError, OverflowError):
        return False
    if not (math.isfinite(number) and math.isfinite(other)):
        return number == other
    return abs(number - other) <= _ABSOLUTE + _RELATIVE * abs(other)
