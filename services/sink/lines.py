"""Failure lines (platform.md A9): how a failure event, or a record that cannot be read, becomes a line of the sidecar.

Invariant: every function here returns a line for whatever it is given; the parts that cannot be read are left out, and
the line says so.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas import jsontext
from schemas.errors import FailureClass, Outcome, RolloutError
from schemas.events import Failure
from schemas.identity import RolloutRef
from schemas.rows import AGENT_REF, ATTEMPT_INDEX, ROLLOUT_ID, ROLLOUT_INDEX, TASK_INDEX

CLASS = "_ng_failure_class"
TERMINAL = "_ng_failure_terminal"
JUDGE_ERROR = "_ng_failure_judge_error"
AGENT_TYPE = "responses_api_agents"

UNCOUNTED = frozenset({Outcome.DUPLICATE, Outcome.SUPERSEDED})
"""Outcomes that end a message and not a rollout: such lines are never a reason not to run the rollout again."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The payloads of a failure, fetched; empty when there are none."""

    row: bytes = b""
    response: bytes = b""
    original: bytes = b""


def failure_line(event: Failure, parts: Parts, note: str = "") -> bytes:
    """The A9 line of a failure event. `note` (what could not be fetched) is added to its detail."""
    row = _object(parts.row)
    line = {k: v for k, v in row.items() if k not in _IDENTITY}
    line |= _identity(event, row)
    line |= _said(parts.response)
    return _with_own(line, _flags(event) | _own(event, note) | _original(parts.original))


def unreadable_line(run_id: str, place: str, error: Exception, original: bytes, rollout_id: str = "") -> bytes:
    """The line of a record that the sink could not read: class data, or what the error itself says."""
    kind, again = _class_of(error)
    own: dict[str, Any] = {CLASS: kind, **({} if again else {TERMINAL: True})}
    own |= {"stage": "sink", "error_type": type(error).__name__}
    own |= {"message": str(error), "outcome": Outcome.FAILED, "run_id": run_id, "place": place}
    if rollout_id:
        own["rollout_id"] = rollout_id
    return jsontext.dumps(own | _original(original))


def _class_of(error: Exception) -> tuple[FailureClass, bool]:
    if isinstance(error, RolloutError):
        return error.failure_class, error.retryable
    return (FailureClass.TIMEOUT, True) if isinstance(error, TimeoutError) else (FailureClass.DATA, False)


def uncounted_line(value: bytes, outcome: Outcome, run_id: str, message: str) -> bytes:
    """A result or failure line again, as a record that is kept and never counted."""
    line = _object(value)
    own = {"stage": line.get("stage", "sink"), "error_type": "DuplicateError", "message": message, "outcome": outcome}
    line.pop(TERMINAL, None)
    return _with_own(line, {CLASS: FailureClass.DATA, **own, "run_id": run_id})


def place_of(event: Failure) -> str:
    """Where the failure happened, `topic/partition/offset` or `file:line`; empty when it is not known."""
    if event.place is not None:
        return str(event.place)
    return f"{event.file}:{event.line}" if event.file else ""


_IDENTITY = frozenset({TASK_INDEX, ROLLOUT_INDEX, ATTEMPT_INDEX, ROLLOUT_ID, AGENT_REF})


def _identity(event: Failure, row: Mapping[str, Any]) -> dict[str, Any]:
    ref = event.ref
    agent = row.get(AGENT_REF) or ({"type": AGENT_TYPE, "name": event.agent} if event.agent else None)
    known = {} if ref is None else _ref_fields(ref)
    return known | ({AGENT_REF: agent} if agent else {})


def _ref_fields(ref: RolloutRef) -> dict[str, Any]:
    fields: dict[str, Any] = {TASK_INDEX: ref.task_index, ROLLOUT_INDEX: ref.rollout_index}
    if ref.attempt:
        fields[ATTEMPT_INDEX] = ref.attempt
    if ref.explicit_id:
        fields[ROLLOUT_ID] = ref.explicit_id
    return fields


def _said(data: bytes) -> dict[str, Any]:
    """What the policy had said: a Responses object, or (of a rollout that was not finished) the items of its conversation.

    The latter come as comma-separated JSON and go into `conversation`, not `response`, which readers take for a whole one.
    """
    response = _object(data)
    if isinstance(response.get("output"), list) or "id" in response:
        return {"response": response}
    items = _object(b'{"conversation":[%b]}' % data)
    return items if items.get("conversation") else {}


def _flags(event: Failure) -> dict[str, Any]:
    flags: dict[str, Any] = {CLASS: event.failure_class}
    if not event.retryable and event.outcome not in UNCOUNTED:
        flags[TERMINAL] = True
    if event.failure_class == FailureClass.JUDGE:
        flags |= {JUDGE_ERROR: event.message, "reward": 0.0}
    return flags


def _own(event: Failure, note: str) -> dict[str, Any]:
    detail = "; ".join(t for t in (event.detail, note) if t)
    own = {"stage": event.stage, "error_type": event.error_type, "message": event.message, "detail": detail}
    times = {"elapsed_ms": event.elapsed_ms, "failed_ms": event.failed_ms}
    return own | {"outcome": event.outcome} | times | {"run_id": event.run_id, "place": place_of(event)}


def _original(data: bytes) -> dict[str, Any]:
    if not data:
        return {}
    try:
        return {"original": data.decode()}
    except UnicodeDecodeError:
        return {"original": {"base64": base64.b64encode(data).decode()}}


def _with_own(line: dict[str, Any], own: Mapping[str, Any]) -> bytes:
    """The line with our own fields, which win; a row's field of the same name is kept under `row_fields`."""
    hidden = {k: line[k] for k in own if k in line and k != "reward" and line[k] != own[k]}
    return jsontext.dumps({**line, **own, **({"row_fields": hidden} if hidden else {})})


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = jsontext.loads_lenient(data) if data else {}
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
