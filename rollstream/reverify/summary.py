"""What a scoring in the log has come to: all of it, whoever has worked on it.

Invariant: it is a function of the scoring's committed records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rollstream.reverify.readback import read_back
from rollstream.reverify.replay import Replayed
from schemas import headers
from schemas.topics import FAILURES, SCORED
from services.runtime.claims import ClaimStore
from services.runtime.connection import Connection
from services.runtime.record import ConsumerRecord, Outgoing
from services.sink.step import RESULTS, REWARD


@dataclass(slots=True)
class Sums:
    """One environment's rollouts."""

    scored: int = 0
    rewards: float = 0.0


@dataclass(slots=True)
class Summary:
    """A scoring's rollouts by environment, and what failed of them."""

    done: Replayed
    sums: dict[str, Sums] = field(default_factory=dict)
    failed: int = 0

    @property
    def topics(self) -> tuple[str, str]:
        """Where the scoring is."""
        return self.done.topics.name(SCORED), self.done.topics.name(FAILURES)

    def take(self, record: ConsumerRecord, outputs: Sequence[Outgoing]) -> None:
        """Count the lines of a record."""
        environment = (headers.value(record.headers, headers.ENVIRONMENT) or b"").decode("utf-8", "replace")
        for out in outputs:
            if out.topic != RESULTS:
                self.failed += 1
                continue
            sums = self.sums.setdefault(environment, Sums())
            sums.scored += 1
            sums.rewards += float(headers.value(out.headers, REWARD) or 0)

    def rows(self) -> list[tuple[Any, ...]]:
        """Environment, verifier, scored, failed, mean reward."""
        found = []
        for name, verifier in self.done.verifiers.items():
            s = self.sums.get(name, Sums())
            failed = max(0, self.done.count[name] - s.scored)
            found.append(
                (name, f"{verifier.name} {verifier.version}", s.scored, failed, s.rewards / s.scored if s.scored else None)
            )
        return found

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        keys = ("verifier", "scored", "failed", "mean_reward")
        environments = {name: dict(zip(keys, values, strict=True)) for name, *values in self.rows()}
        scored = sum(s.scored for s in self.sums.values())
        return {
            "scoring": self.done.scoring,
            "topics": list(self.topics),
            "environments": environments,
            "scored": scored,
            "failed": self.failed,
        }


async def summary_of(done: Replayed, connection: Connection, claims: ClaimStore) -> Summary:
    """Read the scoring; raises as `read_back` does."""
    found = Summary(done)
    await read_back(connection, done.topics, claims, found.take)
    return found
