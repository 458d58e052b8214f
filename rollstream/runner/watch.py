"""What a run shows of itself while it goes on, and how it knows that it is done.

Invariant: `ended` counts rollouts, not lines: a line that is made again after a broken commit counts once.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from rollstream.runner.averages import Averages
from schemas import headers, jsontext
from schemas.errors import Outcome
from services.runtime.record import Outgoing, Outputs
from services.sink.step import RESULTS, REWARD

_UNCOUNTED = {str(Outcome.DUPLICATE).encode(), str(Outcome.SUPERSEDED).encode()}

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_REASON, _REASONS = 240, 100
"""Characters of a reason, and reasons, that are kept to be shown."""


@dataclass(slots=True)
class Watch:
    """Rollouts that have ended, by the lines the sink makes.

    `expected` is set when it is known how many there will be; `refused` counts lines about rows that became no rollout; `left`
    are the rollouts of each agent that have not ended.
    """

    expected: int | None = None
    scored: int = 0
    scored_before: int = 0
    rewards: float = 0.0
    failures: Counter[str] = field(default_factory=Counter)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    refused: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    averages: Averages = field(default_factory=Averages)
    _agents: dict[bytes, str] = field(default_factory=dict)
    _samples: dict[str, str] = field(default_factory=dict)
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

    def asked(self, key: bytes, agent: str) -> None:
        """Note whose rollout `key` is; one that has ended is not left."""
        if key not in self._ended:
            self._agents[key] = agent
            self.left[agent] += 1

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
        agent = self._agents.pop(out.key, None)
        if agent is not None:
            self.left[agent] -= 1
        if out.topic == RESULTS:
            self.averages.add(out.value)
            self.scored += 1
            self.rewards += float(headers.value(out.headers, REWARD) or b"nan")
        else:
            self._failed(jsontext.loads_lenient(out.value))

    def _failed(self, line: dict[str, Any]) -> None:
        kind = str(line.get("_ng_failure_class", "unknown"))
        self.failures[kind] += 1
        reason = f"{kind} ({line.get('stage')}): {line.get('message')}"[:_REASON]
        alike = _NUMBER.sub("#", reason)  # reasons that differ in a time or an id are one
        if alike in self._samples or len(self._samples) < _REASONS:
            self.reasons[self._samples.setdefault(alike, reason)] += 1
