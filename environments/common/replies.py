"""What counts as the text of a judge's reply: the three reading rules (judge.md §3).

Invariant: a reply that cannot be read gives None, never an error: it was received, so the call has not failed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from environments.response import Item, Response, is_assistant_message


def last_part(response: Response) -> str | None:
    """Text of the last content part of the last output item, when that item is a message; "" is a text."""
    items = response.body.get("output")
    item = items[-1] if isinstance(items, list) and items else None
    if not isinstance(item, dict) or item.get("type", "message") != "message":
        return None
    content = item.get("content")
    if isinstance(content, str):
        return content
    return _text(content[-1]) if isinstance(content, list) and content else None


def last_message(response: Response) -> str | None:
    """Text parts of the last assistant message that has any, a line each."""
    for item in reversed(response.output):
        texts = list(_texts(item)) if is_assistant_message(item) else []
        if texts:
            return "\n".join(texts)
    return None


def all_messages(response: Response, *, separator: str = "\n", kinds: Iterable[str] | None = None) -> str | None:
    """Text parts of all assistant messages in order, joined by `separator`; `kinds` limits the types of parts."""
    wanted = None if kinds is None else frozenset(kinds)
    texts = [t for item in response.output if is_assistant_message(item) for t in _texts(item, wanted)]
    return separator.join(texts) if texts else None


def _texts(item: Item, kinds: frozenset[str] | None = None) -> Iterable[str]:
    content = item.get("content")
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else ():
        text = _text(part)
        if text is not None and (kinds is None or part.get("type") in kinds):
            yield text


def _text(part: Any) -> str | None:
    text = part.get("text") if isinstance(part, dict) else None
    return text if isinstance(text, str) else None
