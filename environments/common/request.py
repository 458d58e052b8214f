"""What a row's request says, as judges are told it.

Invariant: reading never raises, whatever stands in `input`; anything that is no text contributes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def user_contents(params: Mapping[str, Any]) -> list[Any]:
    """Contents of the request's user messages in order; a plain string `input` has no messages."""
    items = params.get("input")
    messages = (i for i in items if isinstance(i, Mapping)) if isinstance(items, list) else ()
    return [i.get("content") for i in messages if i.get("role") == "user" and i.get("type", "message") == "message"]


def text_of(content: Any, *, separator: str = "\n") -> str | None:
    """A content's text: itself, or its text parts joined; None when it has none."""
    if isinstance(content, str):
        return content
    texts = list(_part_texts(content))
    return separator.join(texts) if texts else None


def _part_texts(content: Any) -> Iterator[str]:
    for part in content if isinstance(content, list) else ():
        text = part.get("text") if isinstance(part, Mapping) else None
        if isinstance(text, str):
            yield text
