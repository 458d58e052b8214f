"""Reading the JSONL files of a run, ours or the reference's (platform.md A6).

Invariant: a last line that was torn by a crash is left out and reported; any other line that is not a JSON object is an
error with file and number, since what stands after it cannot be trusted to be whole either.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas import jsontext
from schemas.rows import ROLLOUT_INDEX, TASK_INDEX
from services.sink.lines import CLASS, TERMINAL, UNCOUNTED

Key = tuple[int, int]
"""(task index, rollout index)."""


class MalformedLineError(ValueError):
    """A line inside a file is not what it should be."""

    def __init__(self, path: Path, number: int, reason: str) -> None:
        super().__init__(f"{path}:{number}: {reason}")


@dataclass(frozen=True, slots=True)
class TornLine:
    """The rest of a line that a crash cut off, at the end of a file."""

    path: Path
    number: int
    size: int

    def __str__(self) -> str:
        return f"{self.path}:{self.number}: the last line is cut off after {self.size:,} bytes; it is left out"


class JsonLines:
    """The objects of a JSONL file, in order. `torn` is known once they have been read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn: TornLine | None = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Every object; raises `MalformedLineError`, and `OSError` when the file cannot be read."""
        for _, value in self.numbered():
            yield value

    def numbered(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Every object with the number of its line."""
        for number, _, _, value in self.placed():
            yield number, value

    def placed(self) -> Iterator[tuple[int, int, int, dict[str, Any]]]:
        """Every object with its line: number, first byte and size in bytes."""
        start = end = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                start, end = end, end + len(line)
                if not line.strip():
                    continue
                try:
                    value = jsontext.loads_lenient(line)
                except (ValueError, RecursionError) as e:
                    if line.endswith(b"\n"):
                        raise MalformedLineError(self.path, number, f"not JSON: {e}") from e
                    self.torn = TornLine(self.path, number, len(line))
                    return
                if not isinstance(value, dict):
                    raise MalformedLineError(self.path, number, "expected a JSON object")
                yield number, start, len(line), value


def key_of(line: dict[str, Any]) -> Key | None:
    """The rollout of a line; None when the line does not say."""
    task, rollout = line.get(TASK_INDEX), line.get(ROLLOUT_INDEX)
    return (task, rollout) if isinstance(task, int) and isinstance(rollout, int) else None


def done_keys(results: Path) -> set[Key]:
    """Rollouts that have a result; raises `MalformedLineError`."""
    return {key for line in JsonLines(results) if (key := key_of(line)) is not None}


@dataclass(frozen=True, slots=True)
class Tries:
    """What failed so far of one rollout: attempts, the class of the last, and whether another makes no sense."""

    count: int
    last_class: str
    terminal: bool


def failed_tries(failures: Path) -> dict[Key, Tries]:
    """Failed attempts by rollout, those kept and not counted left out; empty when there is no file."""
    found: dict[Key, Tries] = {}
    for line in JsonLines(failures) if failures.exists() else ():
        key = key_of(line)
        if key is None or line.get("outcome") in UNCOUNTED:
            continue
        before = found.get(key, Tries(0, "", terminal=False))
        terminal = before.terminal or line.get(TERMINAL) is True
        found[key] = Tries(before.count + 1, str(line.get(CLASS, "")), terminal)
    return found
