"""The answer in a text (reasoning_gym.md, "Scoring" 2). Invariant: time linear in the text."""

from __future__ import annotations

_OPEN, _CLOSE = "<answer>", "</answer>"
_BOX = "\\boxed{"


def extract_answer(text: str) -> str:
    """The last `<answer>…</answer>`, else the first box that is not empty, else the whole text; stripped."""
    found = _last_tagged(text)
    if found is None:
        found = _first_boxed(text)
    return (text if found is None else found).strip()


def _last_tagged(text: str) -> str | None:
    """Tags are read from the left, each pair closed by the first closing tag behind it."""
    found, place = None, text.find(_OPEN)
    while place >= 0:
        end = text.find(_CLOSE, place + len(_OPEN))
        if end < 0:
            break
        found = text[place + len(_OPEN) : end]
        place = text.find(_OPEN, end + len(_CLOSE))
    return found


def _first_boxed(text: str) -> str | None:
    """Up to the first closing brace, whatever was opened before it."""
    place = text.find(_BOX)
    while place >= 0:
        begin = place + len(_BOX)
        end = text.find("}", begin)
        if end < 0:
            return None
        if end > begin:
            return text[begin:end]
        place = text.find(_BOX, begin)
    return None
