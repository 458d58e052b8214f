"""The texts of a rollout's assistant messages, one by one.

Invariant: reading never raises; a part without a text contributes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from environments.response import Item, Response, is_assistant_message


def from_last(response: Response, *, kind: str | None = None) -> Iterator[str]:
    """The text of each assistant message, the last one first: its parts (of type `kind`, or all) with nothing between."""
    for item in reversed(response.output):
        if is_assistant_message(item):
            yield text_of(item, kind=kind)


def text_of(item: Item, *, kind: str | None = None) -> str:
    """The text of one message."""
    content = item.get("content")
    if isinstance(content, str):
        return content
    found = (_text(part, kind) for part in content) if isinstance(content, list) else ()
    return "".join(text for text in found if text is not None)


def _text(part: Any, kind: str | None) -> str | None:
    if not isinstance(part, dict) or (kind is not None and part.get("type") != kind):
        return None
    text = part.get("text")
    return text if isinstance(text, str) else None
