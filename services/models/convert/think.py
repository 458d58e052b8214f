"""Reasoning inside a text: `<think>…</think>` blocks (platform.md D4, D5).

Invariant: linear in the text, whatever it holds; a block that never closes is no block, and what is no block is kept as it
is.
"""

from __future__ import annotations

OPEN, CLOSE = "<think>", "</think>"


def wrapped(thought: str) -> str:
    """A thought as it stands in a text."""
    return f"{OPEN}{thought}{CLOSE}"


def split(text: str) -> tuple[list[str], str]:
    """The thoughts in `text`, in order, and the text without their blocks."""
    thoughts: list[str] = []
    rest: list[str] = []
    at = 0
    while (start := text.find(OPEN, at)) >= 0 and (end := text.find(CLOSE, start)) >= 0:
        rest.append(text[at:start])
        thoughts.append(text[start + len(OPEN) : end])
        at = end + len(CLOSE)
    return thoughts, "".join(rest) + text[at:]
