"""How the scripted server misbehaves on purpose.

A fault is asked for by the server's own list (applied to requests in order of arrival) or by a request, in its metadata
under `scripted_faults`: a JSON list, as a string, applied to that request's tries in order. Invariant: a fault touches
the request it is meant for and no other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from rollstream.scripted import script
from rollstream.scripted.script import Turn

METADATA_KEY = "scripted_faults"

SURROGATE = "\ud83d"
"""Half of an emoji, as engines emit it when they cut a token in two."""


class FaultKind(StrEnum):
    """What goes wrong. The first block replaces the answer, the second changes what is in it."""

    NONE = "none"
    STATUS = "status"
    GARBAGE = "garbage"
    NOT_A_RESPONSE = "not_a_response"
    OVERFLOW = "overflow"
    CLOSE = "close"
    HANG_BEFORE_HEADERS = "hang_before_headers"
    HANG_AFTER_HEADERS = "hang_after_headers"
    CUT = "cut"
    TRICKLE = "trickle"

    NAN = "nan"
    SURROGATE = "surrogate"
    USAGE_NULL = "usage_null"
    INCOMPLETE = "incomplete"
    EMPTY_OUTPUT = "empty_output"
    REASONING_ONLY = "reasoning_only"
    MALFORMED_ARGUMENTS = "malformed_arguments"
    DUPLICATE_ARGUMENTS = "duplicate_arguments"
    UNKNOWN_TOOL = "unknown_tool"
    PARALLEL_CALLS = "parallel_calls"


class Fault(BaseModel):
    """One fault.

    `status`, `retry_after` (as written into the header) and `body` belong to `status` (`body` to `garbage` too);
    `seconds` bounds a hang and spaces the bytes of a trickle; `delay` waits before the fault shows.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: FaultKind = FaultKind.STATUS
    status: Annotated[int, Field(ge=100, le=599)] = 500
    retry_after: str | None = None
    body: str = ""
    seconds: Annotated[float, Field(ge=0, le=86_400)] = 3_600.0
    delay: Annotated[float, Field(ge=0, le=86_400)] = 0.0


REPLACING = frozenset(
    {
        FaultKind.STATUS,
        FaultKind.GARBAGE,
        FaultKind.NOT_A_RESPONSE,
        FaultKind.OVERFLOW,
        FaultKind.CLOSE,
        FaultKind.HANG_BEFORE_HEADERS,
        FaultKind.HANG_AFTER_HEADERS,
        FaultKind.CUT,
    }
)
"""Faults that leave nothing of the script's answer."""

NO_FAULT = Fault(kind=FaultKind.NONE)

_FAULTS = TypeAdapter(tuple[Fault, ...])


def asked_for(request: Mapping[str, Any]) -> tuple[Fault, ...]:
    """The faults in a request's metadata. Raises `ValueError` when they cannot be read."""
    metadata = request.get("metadata")
    text = metadata.get(METADATA_KEY) if isinstance(metadata, dict) else None
    return _FAULTS.validate_json(text) if text else ()


def change_items(kind: FaultKind, items: list[dict[str, Any]], turn: Turn) -> list[dict[str, Any]]:
    """Output items with a fault of the second block in them; unchanged for others."""
    match kind:
        case FaultKind.EMPTY_OUTPUT:
            return []
        case FaultKind.REASONING_ONLY:
            thought = {"type": "summary_text", "text": "Nothing comes to mind."}
            return [{"type": "reasoning", "id": f"rs_{turn.digest[:8].hex()}", "summary": [thought]}]
        case FaultKind.SURROGATE:
            return [script.message(f"half an emoji: {SURROGATE}", turn)]
        case FaultKind.PARALLEL_CALLS if turn.tools:
            return [script.call(turn, n) for n in range(3)]
    return [_change_call(kind, i) if i["type"] == "function_call" else i for i in items]


def change_body(kind: FaultKind, body: dict[str, Any]) -> bytes:
    """The reply's bytes with a fault of the second block around the items."""
    if kind is FaultKind.USAGE_NULL:
        body = {**body, "usage": None}
    elif kind is FaultKind.INCOMPLETE:
        body = {**body, "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    elif kind is FaultKind.NAN:
        body = {**body, "temperature": float("nan")}
    return json.dumps(body).encode()


def _change_call(kind: FaultKind, item: dict[str, Any]) -> dict[str, Any]:
    match kind:
        case FaultKind.MALFORMED_ARGUMENTS:
            return {**item, "arguments": item["arguments"][:-1] + ', "half": '}
        case FaultKind.DUPLICATE_ARGUMENTS:
            inner = item["arguments"][1:-1]
            return {**item, "arguments": f"{{{inner}, {inner}}}" if inner else '{"a": 1, "a": 2}'}
        case FaultKind.UNKNOWN_TOOL:
            return {**item, "name": "no_such_tool"}
    return item
