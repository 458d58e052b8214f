"""What a client has done so far, for metrics and logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counts since the client began, and its state now.

    `retries` and `failures` are by reason (`429`, `connect`, `garbage`, …): tries that were repeated, and calls that
    were given up. `retried_calls` were answered, but not at once. `overflows` are context overflows that became replies.
    """

    calls: int
    answered: int
    retried_calls: int
    overflows: int
    retries: Mapping[str, int]
    failures: Mapping[str, int]
    in_flight: int
    waiting: int
    allowance: int
    breaker: str


@dataclass(slots=True)
class Tally:
    """The running counts behind a snapshot."""

    calls: int = 0
    answered: int = 0
    retried_calls: int = 0
    overflows: int = 0
    retries: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
