"""What is wrong with rows and with the request to expand them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from rollstream.runfiles.tally import UNKNOWN_AGENT, agent_of
from schemas import jsontext


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


def summarised(problems: Iterable[RowProblem]) -> list[str]:
    """A line for each thing that is wrong, in order, however many rows have it."""
    lines: dict[tuple[str, str], list[int]] = {}
    for p in problems:
        lines.setdefault((p.file, p.message), []).append(p.line)
    return [f"{file}:{found[0]}: {message}{_more(found)}" for (file, message), found in lines.items()]


def refused_by_agent(problems: Iterable[RowProblem]) -> Counter[str]:
    """How many rows of each agent were refused; those whose text names none count as `UNKNOWN_AGENT`'s."""
    return Counter(_agent(p.original) for p in problems)


def _more(lines: list[int]) -> str:
    if len(lines) == 1:
        return ""
    return f" (and {len(lines) - 1:,} more row{'s' * (len(lines) > 2)}, the last in line {lines[-1]:,})"  # noqa: PLR2004 - plural


def _agent(text: bytes) -> str:
    try:
        row = jsontext.loads(text)
    except ValueError:
        return UNKNOWN_AGENT
    return agent_of(row) if isinstance(row, dict) else UNKNOWN_AGENT
