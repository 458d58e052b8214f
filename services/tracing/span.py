"""A finished span, and where it goes.

Invariant: whoever makes spans knows neither the SDK nor the network; whoever takes them may be called from any thread, does not
wait and does not raise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Span:
    """One piece of work on a rollout. Ids as in W3C Trace Context; times in nanoseconds since the epoch.

    `error` is why it went wrong, None when it did not.
    """

    name: str
    trace_id: int
    span_id: int
    parent_id: int | None
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Value] = field(default_factory=dict)
    error: str | None = None


class Spans(Protocol):
    """Takes finished spans."""

    def add(self, span: Span) -> None: ...

    def close(self) -> None:
        """Hand on what is held; may take seconds."""
        ...
