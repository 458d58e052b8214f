"""Running averages of result fields, by agent, while a run goes on (platform.md B2).

Invariant: it never costs the run more than a few percent of a core. Lines are parsed as long as their bytes keep within a
budget for each second; beyond it averages are over a sample, and `sampled` says so. A line that cannot be read is passed over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from rollstream.runfiles.tally import agent_of
from schemas import jsontext

BYTES_PER_S = 4 << 20
"""About 10 ms of parsing in each second."""

_FIELDS = 20
"""Fields of one agent that are kept; a line of a hundred tells nobody anything."""


@dataclass(slots=True)
class Averages:
    """Sums by agent and field; `clock` in seconds."""

    clock: Callable[[], float] = time.monotonic
    sampled: bool = False
    _sums: dict[str, dict[str, tuple[float, int]]] = field(default_factory=dict)
    _room: float = BYTES_PER_S
    _at: float | None = None

    def add(self, line: bytes) -> None:
        """Take note of a results line, when there is room for it."""
        now = self.clock()
        if self._at is not None:
            self._room = min(BYTES_PER_S, self._room + (now - self._at) * BYTES_PER_S)
        self._at = now
        if len(line) > self._room:
            self.sampled = True
            return
        self._room -= len(line)
        with suppress(ValueError, RecursionError, OverflowError):
            value = jsontext.loads_lenient(line)
            if isinstance(value, dict):
                self._note(self._sums.setdefault(agent_of(value), {}), value)

    def of(self, agent: str) -> dict[str, float]:
        """The averages of an agent's fields, its reward first."""
        found = {name: total / count for name, (total, count) in self._sums.get(agent, {}).items()}
        return {**({"reward": found["reward"]} if "reward" in found else {}), **found}

    def _note(self, sums: dict[str, tuple[float, int]], line: Mapping[str, Any]) -> None:
        for name, value in line.items():
            if not isinstance(value, int | float) or name.startswith("_") or (name not in sums and len(sums) >= _FIELDS):
                continue
            total, count = sums.get(name, (0.0, 0))
            sums[name] = (total + float(value), count + 1)
