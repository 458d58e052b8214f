"""`STEM_materialized_inputs.jsonl`: every row exactly as it is dispatched (platform.md A6, B1).

Invariant: the file is published whole, by a rename, before anything is dispatched, and its lines stand in (task,
rollout) order; when the rows or the plan are refused, a former file stays as it was.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from environments.registry import Registry
from rollstream.runfiles.expansion import Expansion, Plan, TaskRow
from rollstream.runfiles.problems import RowProblem
from schemas import jsontext
from services.sink.disk import Disk
from services.sink.stopped import stopped

KEPT_ORIGINALS_BYTES = 64 << 20
"""Texts of refused rows kept in memory; those of later problems are dropped, their places are not."""


@dataclass(frozen=True, slots=True)
class Materialized:
    """What came of it. `path` is None when nothing was published (strict, or no good row).

    `tasks` maps a task index to its number of rollouts; `rollouts` is their sum.
    """

    path: Path | None
    rollouts: int
    tasks: Mapping[int, int]
    problems: tuple[RowProblem, ...]
    warnings: tuple[str, ...]


def materialize(
    source: BinaryIO, name: str, output: Path, plan: Plan, registry: Registry, *, strict: bool = False
) -> Materialized:
    """Expand the rows of `source` (called `name` in problems) into `output`.

    Bad rows are left out and listed, all of them; with `strict` one bad row and nothing is published. Raises `PlanError`
    for a plan that does not fit, `SinkStoppedError` when the file cannot be written.
    """
    expansion = Expansion(plan, registry)
    problems = _Problems()
    with _writing(output) as (file, temporary):
        places = _Places()
        for row in expansion.rows(source, name):
            if isinstance(row, RowProblem):
                problems.add(row)
            else:
                places.write(file, row)
        expansion.check()
        publish = len(places) > 0 and not (strict and problems.found)
        if publish:
            _publish(file, temporary, output, places)
    tasks = dict(expansion.tasks)
    warnings = tuple(expansion.warnings())
    return Materialized(output if publish else None, len(places), tasks, tuple(problems.found), warnings)


class _Problems:
    def __init__(self) -> None:
        self.found: list[RowProblem] = []
        self._room = KEPT_ORIGINALS_BYTES

    def add(self, problem: RowProblem) -> None:
        self._room -= len(problem.original)
        self.found.append(problem if self._room >= 0 else replace(problem, original=b""))


class _Places:
    """Where each materialized row lies in the file: 32 bytes a row, enough to put them in order afterwards."""

    def __init__(self) -> None:
        self._tasks, self._rollouts, self._starts, self._sizes = (array("Q") for _ in range(4))
        self._end = 0
        self._last = (-1, -1)
        self.ordered = True

    def __len__(self) -> int:
        return len(self._starts)

    def write(self, file: BinaryIO, task: TaskRow) -> None:
        for i, row in enumerate(task.rollouts(), task.first_rollout):
            line = jsontext.dumps(row) + b"\n"
            file.write(line)
            key = (task.task_index, i)
            self.ordered = self.ordered and key > self._last
            self._last = key
            values = (task.task_index, i, self._end, len(line))
            for column, value in zip((self._tasks, self._rollouts, self._starts, self._sizes), values, strict=True):
                column.append(value)
            self._end += len(line)

    def in_order(self) -> Iterator[tuple[int, int]]:
        """(start, size) of every line, by (task, rollout)."""
        for i in sorted(range(len(self)), key=lambda i: (self._tasks[i], self._rollouts[i])):
            yield self._starts[i], self._sizes[i]


@contextmanager
def _writing(output: Path) -> Iterator[tuple[BinaryIO, Path]]:
    temporary = output.with_name(f".{output.name}.tmp")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w+b") as file:
            yield file, temporary
    except OSError as e:
        raise stopped(e.filename or output, e) from e
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _publish(file: BinaryIO, temporary: Path, output: Path, places: _Places) -> None:
    if not places.ordered:
        with _writing(temporary) as (sorted_file, path):
            for start, size in places.in_order():
                file.seek(start)
                sorted_file.write(file.read(size))
            _finish(sorted_file, path, output)
    else:
        _finish(file, temporary, output)


def _finish(file: BinaryIO, temporary: Path, output: Path) -> None:
    file.flush()
    os.fsync(file.fileno())
    temporary.replace(output)
    Disk().sync_directory(output.parent)
