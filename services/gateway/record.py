"""The record of one model call (platform.md G1).

Invariant: null means that something was not reported; nothing here is computed from what was not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TIMEOUTS, AUTH, RATE = frozenset({408, 504}), frozenset({401, 403}), 429

_UPSTREAM_FROM = 500
_COUNTS = {"tokens_in": "input_tokens", "tokens_out": "output_tokens", "tokens_total": "total_tokens"}


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call. Times are Unix seconds; `request_raw` and `response_raw` hold what could not be parsed."""

    model_call_id: str
    dialect: str
    model_ref: str
    started_at: float
    completed_at: float | None = None
    status_code: int | None = None
    error_category: str | None = None
    request: Any = None
    response: Any = None
    request_raw: str | None = None
    response_raw: str | None = None
    usage: Mapping[str, Any] | None = None
    response_id: str | None = None
    model: str | None = None
    response_status: str | None = None
    finish_reason: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The line of the capture file."""
        line: dict[str, Any] = {
            "model_call_id": self.model_call_id,
            "dialect": self.dialect,
            "model_ref": self.model_ref,
            "started_at": self.started_at,
            "completed_at": self.completed_at,
            "latency_ms": None if self.completed_at is None else (self.completed_at - self.started_at) * 1000,
            "latency_ttft_ms": None,  # the answer is buffered: when its first token came was not seen
            "status_code": self.status_code,
            "error_category": self.error_category,
            "response_id": self.response_id,
            "model": self.model,
            "response_status": self.response_status,
            "finish_reason": self.finish_reason,
            "usage": self.usage,
            "request": self.request,
            "response": self.response,
        }
        raw = {"request_raw": self.request_raw, "response_raw": self.response_raw}
        return {**line, **{k: v for k, v in raw.items() if v is not None}}


def category(status: int) -> str | None:
    """G1's word for an HTTP status; None for success."""
    if status < 400:  # noqa: PLR2004
        return None
    if status in TIMEOUTS:
        return "timeout"
    if status in AUTH:
        return "auth"
    words = {RATE: "rate_limit", 404: "not_found"}
    return words.get(status, "upstream_error" if status >= _UPSTREAM_FROM else "client_error")


def attachment(rollout_id: str, calls: list[dict[str, Any]], gaps: list[dict[str, Any]]) -> dict[str, Any]:
    """`ng_model_call_capture`: the calls with their sums. A sum with an unknown part is null (A5)."""
    usages = [c["usage"] if isinstance(c.get("usage"), Mapping) else {} for c in calls if c.get("error_category") is None]
    metrics: dict[str, Any] = {name: _sum([u.get(field) for u in usages]) for name, field in _COUNTS.items()}
    metrics["tokens_reasoning"] = _sum([_detail(u, "output_tokens_details", "reasoning_tokens") for u in usages])
    metrics["cached_tokens"] = _sum([_detail(u, "input_tokens_details", "cached_tokens") for u in usages])
    metrics["latency_total_ms"] = _sum([c.get("latency_ms") for c in calls if c.get("error_category") != "incomplete"])
    metrics["num_calls"] = len(calls)
    return {"rollout_id": rollout_id, "metrics": metrics, "calls": calls, "gaps": gaps}


def _detail(usage: Mapping[str, Any], group: str, name: str) -> Any:
    details = usage.get(group)
    return details.get(name) if isinstance(details, Mapping) else None


def _sum(values: list[Any]) -> Any:
    return sum(values) if values and all(isinstance(v, int | float) for v in values) else None
