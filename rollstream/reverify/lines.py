"""The lines of a stored file, with their places (platform.md A6).

Invariant: a line that is not what it should be costs that line. It is kept as a problem with file, number and text; a last
line that a crash has cut off is no problem and is reported apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from sys import intern
from typing import Any

from rollstream.runfiles.problems import RowProblem
from rollstream.runfiles.readers import TornLine
from rollstream.runfiles.source import KEPT_BYTES
from schemas import jsontext
from schemas.rows import AGENT_REF


class StoredLines:
    """The objects of a JSONL file with their line numbers and places. `problems` and `torn` are known once they are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[RowProblem] = []
        self.torn: TornLine | None = None

    def __iter__(self) -> Iterator[tuple[int, int, int, dict[str, Any]]]:
        """Every object: number of its line, first byte, size with the line end; raises `OSError`."""
        start = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                value = self._read(number, line)
                if value is not None:
                    yield number, start, len(line), value
                start += len(line)

    def refuse(self, number: int, why: str, text: bytes = b"") -> None:
        """A line that cannot be used."""
        self.problems.append(RowProblem(str(self.path), number, why, text[:KEPT_BYTES]))

    def _read(self, number: int, line: bytes) -> dict[str, Any] | None:
        try:
            value = jsontext.loads_lenient(line)
        except (ValueError, RecursionError) as e:
            if not line.strip():
                return None
            if line.endswith(b"\n"):
                self.refuse(number, f"not JSON: {e}", line)
            else:
                self.torn = TornLine(self.path, number, len(line))
            return None
        if type(value) is dict:
            return value
        self.refuse(number, "expected a JSON object", line)
        return None


def agent_of(line: dict[str, Any]) -> str:
    """Name of the line's agent, empty when it names none."""
    ref = line.get(AGENT_REF)
    name = ref.get("name") if isinstance(ref, dict) else None
    return intern(name) if isinstance(name, str) else ""
