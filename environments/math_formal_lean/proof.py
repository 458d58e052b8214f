"""From what the policy wrote to the program that Lean compiles (math_formal_lean.md, "Scoring" 2 to 4).

Invariant: pure and linear in the text, whatever it is; nothing here raises.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

FENCE = "```"
TAGS = ("lean4", "lean3", "lean", "")
"""Tags of a code block in order of preference; the empty one also takes blocks of other languages, their tag included."""

_HEADER = re.compile(r"(?:theorem|example)\b")


def extract_code(text: str, which: Literal["first", "last"] = "last") -> str:
    """The code in `text`: its first or last block of the best tag there is, else all of it without an outer fence."""
    for tag in TAGS:
        found = _blocks(text, FENCE + tag)
        if found:
            code = found[0 if which == "first" else -1].strip()
            return code or _unfenced(text)
    return _unfenced(text)


def proof_part(code: str) -> str:
    """What follows the statement of the first theorem in `code`, without the `by` that the restated statement has."""
    lines = code.split("\n")
    header = next((i for i, line in enumerate(lines) if _HEADER.match(line.lstrip())), None)
    if header is None:
        return code.strip()
    start = next((i for i in range(header, len(lines)) if ":=" in lines[i]), None)
    if start is None:
        return code.strip()
    first = lines[start].split(":=", 1)[1].strip()
    return _without_by([*([first] if first else []), *lines[start + 1 :]])


def _without_by(lines: Sequence[str]) -> str:
    first = lines[0].lstrip() if lines else ""
    if first == "by":
        lines = lines[1:]
    elif first.startswith("by "):
        lines = [first.removeprefix("by "), *lines[1:]]
    return "\n".join(lines).rstrip()


def _blocks(text: str, opening: str) -> list[str]:
    """The contents of all blocks that begin with `opening`, each up to the next fence."""
    found, at = [], text.find(opening)
    while at >= 0:
        start = at + len(opening)
        end = text.find(FENCE, start)
        if end < 0:
            break
        found.append(text[start:end])
        at = text.find(opening, end + len(FENCE))
    return found


def _unfenced(text: str) -> str:
    text = text.strip()
    if text.startswith(FENCE):
        text = text.removeprefix(FENCE)
        tag = next((t for t in TAGS if text.startswith(t)), "")
        text = text.removeprefix(tag)
    return text.removesuffix(FENCE).strip()
