"""What a model server may answer.

Owns the reply of one call, and the cheap check that a body is a Responses object (platform.md A5). Invariant: whoever
gets a `ModelReply` may read `output`, its items and `usage` without looking at their types again. The openai package's
own type explains a refused body in the error path; it costs a second to import and is not needed before.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from schemas import jsontext

if TYPE_CHECKING:
    from openai.types.responses import Response

CONTEXT_OVERFLOW = "context_overflow"
"""Key in a response's `metadata`: the conversation no longer fitted into the model's context (platform.md D6)."""

MAX_TOKENS_REASON = "max_output_tokens"

_OVERFLOW_CODES = frozenset({"context_length_exceeded", "context_window_exceeded", "prompt_too_long"})
_OVERFLOW_TEXTS = ("context length", "max_tokens", "context window", "prompt is too long")
"""The first two are the reference's (D6); the others are how further engines say the same."""

_OTHER_CODES = frozenset(
    {"unsupported_parameter", "unknown_parameter", "invalid_type", "invalid_value", "missing_required_parameter"}
)
"""Structured codes that win over a text that happens to contain `max_tokens`, as in "max_tokens is not supported"."""

_UNFINISHED = frozenset({"failed", "cancelled", "queued", "in_progress"})
_OBJECTS = ("usage", "incomplete_details", "error", "metadata")
_ECHOED = ("instructions", "metadata", "parallel_tool_calls", "temperature", "tool_choice", "tools", "top_p")
_MAX_EXPLAINED = 3


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A Responses object (`body`), and what the engine sent, in its own API (`raw`).

    `attempts` counts the tries, `latency_s` the whole call with its waiting.
    """

    body: dict[str, Any]
    raw: bytes
    attempts: int
    latency_s: float


def parse(raw: bytes) -> tuple[Any, str | None]:
    """The JSON value of a body, and what keeps it from being a finished Responses object (None: nothing)."""
    try:
        body = jsontext.loads_lenient(raw)
    except (ValueError, RecursionError) as e:
        return None, f"the body is not JSON: {e}" if raw else "the body is empty"
    return body, problem(body)


def problem(body: Any) -> str | None:
    """What is wrong with a reply, in words, or None."""
    if not isinstance(body, dict):
        return f"the reply is a JSON {type(body).__name__}, not an object"
    if body.get("object", "response") != "response":
        return f"the reply's object is {body['object']!r}, not 'response'; is this the right API?"
    output = body.get("output")
    if not isinstance(output, list):
        return "the reply has no list `output`"
    for i, item in enumerate(output):
        if wrong := _item_problem(item):
            return f"output[{i}] {wrong}"
    return _rest_problem(body)


def overflows(status: int, raw: bytes) -> bool:
    """Whether an error says that the conversation is longer than the model's context (platform.md D6)."""
    if status != 400:  # noqa: PLR2004
        return False
    code = _error_code(raw)
    if code in _OVERFLOW_CODES:
        return True
    text = raw.decode("utf-8", "replace").lower()
    return code not in _OTHER_CODES and any(t in text for t in _OVERFLOW_TEXTS)


def overflowed(body: Mapping[str, Any]) -> bool:
    """Whether a reply is one that stands for an overflow (`overflow_body`)."""
    metadata = body.get("metadata")
    return isinstance(metadata, Mapping) and metadata.get(CONTEXT_OVERFLOW) == "true"


def overflow_body(request: bytes, model: str, key: str) -> dict[str, Any]:
    """The reply that stands for an overflow: an empty assistant message, incomplete for want of tokens.

    The ids follow from the call's `key`, so a repeated call has the same reply. The request is parsed for what a
    Responses object echoes; this is not the hot path.
    """
    asked = _as_object(request)
    digest = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:32]
    text = {"type": "output_text", "text": "", "annotations": []}
    message = {"id": f"msg_{digest}", "type": "message", "role": "assistant", "status": "incomplete", "content": [text]}
    echoed = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "temperature": None, "top_p": None}
    echoed |= {k: asked[k] for k in _ECHOED if k in asked}
    metadata = asked.get("metadata")
    return {
        "id": f"resp_{digest}",
        "object": "response",
        "created_at": int(time.time()),
        "model": model,
        **echoed,
        "metadata": {**(metadata if isinstance(metadata, dict) else {}), CONTEXT_OVERFLOW: "true"},
        "error": None,
        "status": "incomplete",
        "incomplete_details": {"reason": MAX_TOKENS_REASON},
        "output": [message],
        "usage": None,
    }


def explain(body: Any) -> str:
    """What the openai package's `Response` type finds wrong with a refused body, in a line. Slow; call off the loop."""
    from openai.types.responses import Response
    from pydantic import ValidationError

    try:
        _strictly(Response, body)
    except ValidationError as e:
        found = [f"{'.'.join(map(str, d['loc']))}: {d['msg']}" for d in e.errors(include_input=False)]
        more = f" (and {len(found) - _MAX_EXPLAINED} more)" if len(found) > _MAX_EXPLAINED else ""
        return "; ".join(found[:_MAX_EXPLAINED]) + more
    return ""


def _strictly(cls: type[Response], body: Any) -> Response:
    return cls.model_validate(body)


def _item_problem(item: Any) -> str | None:
    if not isinstance(item, dict):
        return f"is a JSON {type(item).__name__}, not an object"
    kind = item.get("type")
    if kind is None:
        if not isinstance(item.get("role"), str):
            return "has neither a type nor a role"
    elif not isinstance(kind, str):
        return "has a type that is not a string"
    if kind is None or kind == "message":
        content = item.get("content")
        if content is not None and not isinstance(content, (list, str)):
            return f"is a message whose content is a JSON {type(content).__name__}"
    return None


def _rest_problem(body: dict[str, Any]) -> str | None:
    status = body.get("status")
    if isinstance(status, str) and status in _UNFINISHED:
        return f"the reply's status is {status!r}"
    for name in _OBJECTS:
        value = body.get(name)
        if value is not None and not isinstance(value, dict):
            return f"`{name}` is a JSON {type(value).__name__}, not an object or null"
    return None


def _error_code(raw: bytes) -> str | None:
    error = _as_object(raw).get("error")
    code = error.get("code") if isinstance(error, dict) else _as_object(raw).get("code")
    return code if isinstance(code, str) else None


def _as_object(raw: bytes) -> dict[str, Any]:
    try:
        value = jsontext.loads_lenient(raw)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
