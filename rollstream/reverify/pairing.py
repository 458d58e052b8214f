"""Stored rollouts joined with the rows they came from (platform.md C1).

Owns the join on (task, rollout). Invariant: every line of the rollouts file becomes one pair or one problem; nothing is
verified against a row that is not surely its own. About 400 bytes are kept of a pair, never its text.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rollstream.reverify.lines import StoredLines, agent_of
from rollstream.runfiles.readers import Key, TornLine, key_of
from schemas.errors import FailureClass
from services.sink.lines import CLASS


class Pair(NamedTuple):
    """A stored rollout and its input row, each by first byte and size in its file.

    `number` is the line of the rollout, `reward` what it had (None: none). Flat, because a hundred thousand of them go to
    other processes.
    """

    task: int
    rollout: int
    row_start: int
    row_size: int
    start: int
    size: int
    number: int
    agent: str
    reward: float | None

    @property
    def key(self) -> Key:
        """(task, rollout)."""
        return self[:2]


class _Row(NamedTuple):
    start: int
    size: int
    number: int
    agent: str


@dataclass(slots=True)
class Inputs:
    """The rows of a materialized file by rollout. `clashes` are rollouts that have several, with the two lines' numbers."""

    lines: StoredLines
    rows: dict[Key, _Row] = field(default_factory=dict)
    clashes: dict[Key, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Inputs:
        """Read the rows of `path`; raises `OSError`."""
        found = cls(StoredLines(path))
        for number, start, size, line in found.lines:
            key = key_of(line)
            if key is None:
                found.lines.refuse(number, "the row names no rollout (_ng_task_index, _ng_rollout_index)")
                continue
            first = found.rows.setdefault(key, _Row(start, size, number, agent_of(line)))
            if first.number != number and not _same(path, first[:2], (start, size)):
                found.clashes.setdefault(key, (first.number, number))
        return found

    def tasks(self) -> dict[int, set[int]]:
        """The rollouts of each task."""
        found: dict[int, set[int]] = {}
        for task, rollout in self.rows:
            found.setdefault(task, set()).add(rollout)
        return found


class Pairs:
    """The rollouts of a file and their rows, in the file's order. `problems` and `torn` are known once they are read.

    `judge_failed` reads a failures file instead: of each rollout that has no result in `skip`, the last `judge_failed` line.
    """

    def __init__(self, inputs: Inputs, path: Path, *, judge_failed: bool = False, skip: frozenset[Key] = frozenset()) -> None:
        self.lines = StoredLines(path)
        self._inputs = inputs
        self._judge_failed = judge_failed
        self._skip = skip

    def read(self) -> list[Pair]:
        """All pairs; raises `OSError`."""
        found: dict[Key, Pair] = {}
        for pair in self._pairs():
            first = found.get(pair.key)
            if first is None or self._judge_failed:
                found[pair.key] = pair
            else:
                self.lines.refuse(pair.number, f"{_named(pair.key)} stands in line {first.number} already; that one counts")
        return list(found.values())

    @property
    def torn(self) -> TornLine | None:
        return self.lines.torn

    def _pairs(self) -> Iterator[Pair]:
        for number, start, size, line in self.lines:
            if self._judge_failed and line.get(CLASS) != FailureClass.JUDGE:
                continue
            key = key_of(line)
            why = "the line names no rollout (_ng_task_index, _ng_rollout_index)" if key is None else self._why_not(key, line)
            if why or key is None:
                self.lines.refuse(number, why)
            elif key not in self._skip:
                row = self._inputs.rows[key]
                yield Pair(*key, row.start, row.size, start, size, number, row.agent or agent_of(line), _reward(line))

    def _why_not(self, key: Key, line: dict[str, Any]) -> str:
        """Why a line cannot be verified; empty when it can."""
        path = self._inputs.lines.path
        if key not in self._inputs.rows:
            return f"{_named(key)} has no row in {path}"
        if key in self._inputs.clashes:
            first, second = self._inputs.clashes[key]
            return f"{_named(key)} has two rows in {path}, and they differ: lines {first} and {second}"
        return "" if isinstance(line.get("response"), dict) else "the line holds no response"


def _same(path: Path, *spans: tuple[int, int]) -> bool:
    """Whether the lines at these places of a file have one text."""
    with path.open("rb") as file:
        return len({os.pread(file.fileno(), size, start).strip() for start, size in spans}) == 1


def _named(key: Key) -> str:
    return f"rollout {key[0]}:{key[1]}"


def _reward(line: dict[str, Any]) -> float | None:
    reward = line.get("reward")
    if CLASS in line or not isinstance(reward, int | float):
        return None
    return float(reward) if math.isfinite(reward) else None
