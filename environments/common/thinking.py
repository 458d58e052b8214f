"""Taking a model's thinking out of its text.

Invariant: time is linear in the text, however many tags stand in it (a lazy regular expression would be quadratic).
"""

from __future__ import annotations

from collections.abc import Iterator


def without_thinking(text: str, tags: tuple[str, ...] = ("think", "thinking")) -> str:
    """`text` without its thinking, trimmed.

    First every closed block of each tag goes, then everything up to the first closing tag that is left of each. An opening
    tag that is never closed stays.
    """
    for tag in tags:
        text = "".join(_outside(text, f"<{tag}>", f"</{tag}>"))
    for tag in tags:
        before, found, after = text.partition(f"</{tag}>")
        text = after if found else before
    return text.strip()


def _outside(text: str, opening: str, closing: str) -> Iterator[str]:
    position = 0
    while (start := text.find(opening, position)) >= 0:
        end = text.find(closing, start + len(opening))
        if end < 0:
            break
        yield text[position:start]
        position = end + len(closing)
    yield text[position:]
