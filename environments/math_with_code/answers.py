r"""The boxed answer of a rollout, and whether it is the expected one (math_with_code.md, "Scoring").

Invariant: time is linear in the rollout's text; reading never raises.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from environments.common.messages import from_last
from environments.common.options import last_boxed
from environments.response import Response

TOLERANCE = 1e-6
"""Numbers agree within this, relative to the expected one where that is above 1."""

_TEXT = r"\text{"


def extract(response: Response) -> str | None:
    """Content of the deciding box: of the last message that has one, else of the last tool output that printed one."""
    printed = (_printed(i.get("output")) for i in reversed(response.output) if i.get("type") == "function_call_output")
    return next(_boxes(from_last(response, kind="output_text")), None) or next(_boxes(printed), None)


def agree(answer: str, expected: str) -> bool:
    """Whether both are the same once normalised: as texts, or as numbers that Python's `float` reads."""
    mine, right = normalise(answer), normalise(expected)
    if mine == right:
        return True
    try:
        actual, wanted = float(mine), float(right)
    except ValueError:
        return False
    return abs(actual - wanted) < TOLERANCE * max(1.0, abs(wanted))


def normalise(text: str) -> str:
    r"""`text` without one outer `\( \)`, one `$ $`, one `\text{ }` and superfluous blanks."""
    text = text.strip()
    for start, end in (("\\(", "\\)"), ("$", "$"), (_TEXT, "}")):
        if len(text) >= len(start) + len(end) and text.startswith(start) and text.endswith(end):
            text = text[len(start) : len(text) - len(end)].strip()
    return " ".join(text.split())


def _boxes(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        box = (last_boxed(text) or "").strip()
        if box:
            yield box


def _printed(output: Any) -> str:
    """What a tool's output shows: its `stdout`, or all of it when it is no JSON object."""
    if not isinstance(output, str):
        return ""
    try:
        value = json.loads(output)
    except (ValueError, RecursionError):
        return output
    if not isinstance(value, dict):
        return output
    stdout = value.get("stdout", "")
    return stdout if isinstance(stdout, str) else ""
