"""The conversation, from Responses items to chat messages (platform.md D4, D9).

Invariant: what the model said between two messages of others is one assistant message, in the order in which it was said,
with the token fields of its last call unchanged; an item without a form over there is an error that names its type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from schemas.errors import DataError
from services.models.convert import parts, think

TOKEN_FIELDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
"""All or none of them, on the last item of a call (A4)."""

_LEADING = frozenset({"system", "developer"})
_ROLES = frozenset({"user", "system", "developer"})


class _Assistant:
    """What the model said since somebody else did."""

    __slots__ = ("calls", "said", "texts", "tokens")

    def __init__(self) -> None:
        self.said = False
        self.texts: list[str] = []
        self.calls: list[Any] = []
        self.tokens: dict[str, Any] = {}

    def take(self, item: Mapping[str, Any], kind: str) -> None:
        """Add an item; `kind` is its type."""
        self.said = True
        if kind == "reasoning":
            self.texts += [think.wrapped(t) for t in _thoughts(item) if t]
        elif kind == "function_call":
            self.calls.append(_tool_call(item))
        else:
            self._take_message(item)
        tokens = {f: item[f] for f in TOKEN_FIELDS if item.get(f) is not None}
        if tokens and len(tokens) < len(TOKEN_FIELDS):
            raise DataError(f"an item has {', '.join(tokens)} but not all of {', '.join(TOKEN_FIELDS)}")
        self.tokens = tokens or self.tokens

    def message(self) -> dict[str, Any]:
        """It as one chat message."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self.texts) or None}
        if self.calls:
            message["tool_calls"] = self.calls
        return {**message, **self.tokens}

    def _take_message(self, item: Mapping[str, Any]) -> None:
        thought = item.get("reasoning_content") or item.get("reasoning")
        if isinstance(thought, str):
            self.texts.append(think.wrapped(thought))
        self.texts.append(parts.assistant_text(item.get("content")))
        inline = item.get("tool_calls")
        if isinstance(inline, list):
            self.calls += inline


def chat_messages(given: Any, instructions: Any = None) -> list[dict[str, Any]]:
    """The messages for an `input`, a string or a list of items. Raises `DataError`."""
    if isinstance(given, str):
        messages: list[dict[str, Any]] = [{"role": "user", "content": given}]
    elif isinstance(given, Sequence):
        messages = _of_items(given)
    else:
        raise DataError(f"input must be a string or a list of items, found a JSON {type(given).__name__}")
    return _instructed(messages, instructions) if isinstance(instructions, str) and instructions else messages


def _of_items(items: Sequence[Any]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    said = _Assistant()
    for item in items:
        if not isinstance(item, Mapping):
            raise DataError(f"input has an item that is a JSON {type(item).__name__}, not an object")
        kind = item.get("type") or "message"
        if kind in {"reasoning", "function_call"} or (kind == "message" and item.get("role") == "assistant"):
            said.take(item, kind)
            continue
        if said.said:
            messages.append(said.message())
            said = _Assistant()
        messages.append(_of_others(item, kind))
    return [*messages, said.message()] if said.said else messages


def _of_others(item: Mapping[str, Any], kind: str) -> dict[str, Any]:
    if kind == "function_call_output":
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": parts.tool_output(item.get("output"))}
    role = item.get("role")
    if kind == "message" and role == "tool":
        return dict(item)
    if kind == "message" and isinstance(role, str) and role in _ROLES:
        return {"role": role, "content": parts.chat_content(item.get("content"), role)}
    if kind == "message":
        raise DataError(f"a message with the role {str(role)[:40]!r} cannot be represented in Chat Completions")
    raise DataError(f"an item of type {str(kind)[:40]!r} cannot be represented in Chat Completions")


def _instructed(messages: list[dict[str, Any]], instructions: str) -> list[dict[str, Any]]:
    """One system message at the head, with the leading ones in it: many back ends allow only one."""
    leading = list(takewhile(lambda m: m["role"] in _LEADING, messages))
    texts = [instructions, *(parts.plain_text(m["content"]) for m in leading)]
    return [{"role": "system", "content": "\n\n".join(texts)}, *messages[len(leading) :]]


def _thoughts(item: Mapping[str, Any]) -> list[str]:
    summary = item.get("summary")
    texts = [s.get("text") for s in summary if isinstance(s, Mapping)] if isinstance(summary, Sequence) else []
    return [t for t in texts if isinstance(t, str)]


def _tool_call(item: Mapping[str, Any]) -> dict[str, Any]:
    name, arguments = item.get("name"), item.get("arguments")
    return {"id": item.get("call_id"), "type": "function", "function": {"name": name, "arguments": arguments}}
