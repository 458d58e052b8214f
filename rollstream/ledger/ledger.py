"""The account of a run: what was dispatched, and how it ended.

Invariant (platform.md A9, K1): dispatched = scored + failed + cancelled + expired + in flight, for the whole and for each
environment; a ledger for which something speaks against it says what.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from schemas import jsontext

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, slots=True)
class Counts:
    """Rollouts by how they stand. `in_flight` have been dispatched and have not ended."""

    dispatched: int = 0
    scored: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0
    in_flight: int = 0

    @property
    def ended(self) -> int:
        return self.scored + self.failed + self.cancelled + self.expired


@dataclass(frozen=True, slots=True)
class Waiting:
    """A rollout in flight: when its prompt was written (epoch milliseconds), and the prompt's place as text."""

    since_ms: int
    prompt: str


@dataclass(frozen=True, slots=True)
class Ledger:
    """The account at one moment; `run` None means all runs.

    `by_environment` splits `total`, `by_class` the rollouts that ended without a score. `beside` are records that end no
    rollout (duplicates, superseded attempts, repeats of at-least-once, stray messages); they are never counted. `unknown`
    and `ended_twice` are the ids of ends that fit no dispatched rollout, or a second end of one: the first few of each,
    with the full numbers in `unknown_count` and `ended_twice_count`.
    """

    run: str | None
    taken_ms: int
    total: Counts = Counts()
    by_environment: Mapping[str, Counts] = field(default_factory=dict)
    by_class: Mapping[str, int] = field(default_factory=dict)
    beside: Mapping[str, int] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    unknown_count: int = 0
    ended_twice: tuple[str, ...] = ()
    ended_twice_count: int = 0
    oldest: Waiting | None = None

    @property
    def balanced(self) -> bool:
        """Whether every dispatched rollout is accounted for exactly once."""
        t = self.total
        return t.dispatched == t.ended + t.in_flight and not self.unknown_count and not self.ended_twice_count

    @property
    def complete(self) -> bool:
        """Whether nothing is in flight."""
        return self.total.in_flight == 0

    @property
    def all_scored(self) -> bool:
        """Whether every dispatched rollout has its score: what exit code 0 means."""
        return self.total.scored == self.total.dispatched

    def equation(self) -> str:
        """The balance as one line of text."""
        t = self.total
        sign = "=" if self.balanced else "≠"
        return (
            f"{t.dispatched:,} dispatched {sign} {t.scored:,} scored + {t.failed:,} failed + {t.cancelled:,} cancelled"
            f" + {t.expired:,} expired + {t.in_flight:,} in flight"
        )

    def complaints(self) -> list[str]:
        """What speaks against the balance, a line each; empty when it holds."""
        lines = []
        if self.unknown_count:
            lines.append(
                f"{self.unknown_count:,} ended without a prompt in the log (have prompts outlived their retention?): "
                f"{', '.join(self.unknown)}"
            )
        if self.ended_twice_count:
            lines.append(f"{self.ended_twice_count:,} ended more than once: {', '.join(self.ended_twice)}")
        return lines

    def as_dict(self) -> dict[str, Any]:
        """The ledger as plain values, with `balanced`."""
        return {**dataclasses.asdict(self), "balanced": self.balanced}

    def as_json(self) -> bytes:
        """The ledger as one line of JSON."""
        return jsontext.dumps(self.as_dict())

    def as_table(self) -> RenderableType:
        """The ledger for a terminal, drawn by rich."""
        from rollstream.ledger.table import ledger_table

        return ledger_table(self)


def time_of(milliseconds: int) -> datetime:
    """Epoch milliseconds as a time in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
