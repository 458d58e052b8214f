"""What is wrong with rows and with the request to expand them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RowProblem:
    """A row that is refused: where it stands, why, and its text (cut when it is longer than a row may be)."""

    file: str
    line: int
    message: str
    original: bytes = b""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


class PlanError(ValueError):
    """The request itself is wrong (an override, a repeat count, an agent), whatever the rows are."""
