"""What a run shows of itself while it goes on, and how it knows that it is done.

Invariant: `ended` counts rollouts, not lines: a line that is made again after a broken commit counts once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from schemas import headers, jsontext
from schemas.errors import Outcome
from services.runtime.record import Outgoing, Outputs
from services.sink.step import RESULTS, REWARD

_UNCOUNTED = {str(Outcome.DUPLICATE).encode(), str(Outcome.SUPERSEDED).encode()}


@dataclass(slots=True)
class Watch:
    """Rollouts that have ended, by the lines the sink makes.

    `expected` is set when it is known how many there will be; `refused` counts lines about rows that became no rollout.
    """

    expected: int | None = None
    scored: int = 0
    scored_before: int = 0
    rewards: float = 0.0
    failures: Counter[str] = field(default_factory=Counter)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    refused: int = 0
    _ended: set[bytes] = field(default_factory=set)

    @property
    def ended(self) -> int:
        return len(self._ended)

    @property
    def complete(self) -> bool:
        """Whether every dispatched rollout has ended."""
        return self.expected is not None and self.ended >= self.expected

    def observe(self, outputs: Outputs) -> None:
        """Take note of the lines the sink has made."""
        for out in outputs:
            self._note(out)
        if outputs:
            self.changed.set()

    def preload(self, key: bytes, *, scored: bool) -> None:
        """Note a rollout that ended before this process began (resume)."""
        self._ended.add(key)
        if scored:
            self.scored_before += 1
        else:
            self.failures["before"] += 1

    def _note(self, out: Outgoing) -> None:
        if headers.value(out.headers, headers.OUTCOME) in _UNCOUNTED:
            return
        if not out.key:
            self.refused += 1
            return
        if out.key in self._ended:
            return
        self._ended.add(out.key)
        if out.topic == RESULTS:
            self.scored += 1
            self.rewards += float(headers.value(out.headers, REWARD) or b"nan")
        else:
            self.failures[str(jsontext.loads_lenient(out.value).get("_ng_failure_class", "unknown"))] += 1
