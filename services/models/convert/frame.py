"""The Responses object around output items, whoever generated them (platform.md A5).

Invariant: all fields of A5 are there, the request's parameters are echoed, and ids follow from the call's key: a call that
is repeated has the same reply.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

_ECHOED = ("instructions", "metadata", "parallel_tool_calls", "temperature", "tool_choice", "tools", "top_p")
_ECHOED_IF_SET = (
    "max_output_tokens",
    "max_tool_calls",
    "reasoning",
    "service_tier",
    "text",
    "top_logprobs",
    "truncation",
    "user",
)
_DEFAULTS = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "metadata": {}}
_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}


def mark_of(key: str) -> str:
    """32 hexadecimal digits for the ids of a call's reply."""
    return hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=16).hexdigest()


def response(
    request: Mapping[str, Any],
    output: list[dict[str, Any]],
    *,
    mark: str,
    created_at: Any,
    model: Any,
    finish: Any,
    usage: dict[str, Any] | None,
) -> dict[str, Any]:
    """The object; `finish` is a chat completion's finish reason."""
    reason = _REASONS.get(finish) if isinstance(finish, str) else None
    echoed = {k: request.get(k) if request.get(k) is not None else _DEFAULTS.get(k) for k in _ECHOED}
    return {
        "id": f"resp_{mark}",
        "object": "response",
        "created_at": created_at,
        "model": model,
        **echoed,
        **{k: request[k] for k in _ECHOED_IF_SET if request.get(k) is not None},
        "output": output,
        "error": None,
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "usage": usage,
    }


def message(text: str, mark: str, *, refusal: str | None = None, whole: bool = True) -> dict[str, Any]:
    """An assistant message."""
    content: list[dict[str, Any]] = [{"type": "output_text", "text": text, "annotations": []}] if text or not refusal else []
    if refusal:
        content.append({"type": "refusal", "refusal": refusal})
    status = "completed" if whole else "incomplete"
    return {"type": "message", "id": f"msg_{mark}", "role": "assistant", "status": status, "content": content}
