"""Reading an answer: the program in it, and whether reasoning tags stand where they must not.

Invariant: time is linear in the text.
"""

from __future__ import annotations

from environments.response import Response

FENCE = "```"

_TAGS = ("<think>", "</think>")


def last_block(text: str) -> str | None:
    """The lines between the last two lines that contain a fence, joined; None when there are none.

    A fence line is any line with three backticks in it, so prose that mentions them counts (the reference's rule).
    """
    end = _fence_line(text, len(text))
    start = _fence_line(text, end[0]) if end else None
    if end is None or start is None:
        return None
    return text[start[1] + 1 : end[0] - 1] or None if start[1] + 1 < end[0] else None


def breaks_format(text: str, response: Response) -> bool:
    """Whether the text has a think tag, or the reasoning items together more than one of either kind."""
    thoughts = "".join(_summaries(response))
    return any(tag in text or thoughts.count(tag) > 1 for tag in _TAGS)


def _fence_line(text: str, end: int) -> tuple[int, int] | None:
    """Start and end of the last line before `end` that contains a fence."""
    at = text.rfind(FENCE, 0, end)
    if at < 0:
        return None
    stop = text.find("\n", at)
    return text.rfind("\n", 0, at) + 1, len(text) if stop < 0 else stop


def _summaries(response: Response) -> list[str]:
    found = []
    for item in response.output:
        parts = item.get("summary") if item.get("type") == "reasoning" else None
        texts = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
        found += [text for text in texts if isinstance(text, str)]
    return found
