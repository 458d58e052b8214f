"""A request's input as a conversation that a judge reads.

Invariant: every text of the input is in it, whichever of the forms of an item holds it; pictures and reasoning are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from environments.common.request import text_of

Message = Mapping[str, Any]
"""A role and a plain text as `content`."""

_ROLES = frozenset({"user", "assistant", "system", "developer"})


def conversation_of(items: Any) -> list[Message]:
    """The messages of a request's `input`: calls of tools are the assistant's words, their results the user's."""
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    found = [_message(i) for i in items if isinstance(i, Mapping)] if isinstance(items, list) else []
    return [m for m in found if m is not None]


def as_text(talk: Sequence[Message]) -> str:
    """The conversation as one text, a paragraph for each turn."""
    return "\n\n".join(f"[{m.get('role', 'user')}]\n{text_of(m.get('content')) or ''}" for m in talk)


def _message(item: Mapping[str, Any]) -> Message | None:
    kind = item.get("type", "message")
    if kind == "message":
        role = item.get("role")
        return {"role": role if role in _ROLES else "user", "content": text_of(item.get("content"), separator="") or ""}
    if kind == "function_call":
        return {"role": "assistant", "content": f"(calls {item.get('name')} with {item.get('arguments')})"}
    if kind == "function_call_output":
        output = item.get("output")
        return {
            "role": "user",
            "content": f"(result of the call) {output if isinstance(output, str) else text_of(output) or ''}",
        }
    return None
