"""The page that a conformance run writes: cases passed, and what a verification costs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

REPORT = "--conformance-report"

PAGE = """\
# Conformance

Cases whose rewards, fields and tool texts were produced by the reference, run through our environments: how many agree, and
the CPU time of one verification. Written by

    pytest tests/conformance --conformance-report docs/conformance.md

CPU is that of the process that verifies, in milliseconds: programs in the sandbox run in others, and judges were scripted. Each
case was run twice and the second run counts, since the first imports and loads what it needs. The cases are meant to be hard, not
typical, and other work shared the machine's two cores. Names are those of the cases: an environment, a variant, or an agent.

| subject | cases passed | p50 ms | p99 ms | skipped |
|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One subject. `skipped` counts cases by reason, `cpu_s` are seconds of its verifications in the order they ran."""

    subject: str
    passed: int
    failed: int
    skipped: Mapping[str, int]
    cpu_s: Sequence[float]

    @property
    def total(self) -> int:
        """All cases, those included that did not run."""
        return self.passed + self.failed + sum(self.skipped.values())


def report_page(rows: Iterable[Row]) -> str:
    """The page for these subjects."""
    listed = sorted(rows, key=lambda r: r.subject)
    passed, total = sum(r.passed for r in listed), sum(r.total for r in listed)
    lines = [_line(r) for r in listed]
    return PAGE + "".join(f"{line}\n" for line in lines) + f"\nTogether {passed:,} of {total:,} cases.\n"


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed (nearest rank)."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _line(row: Row) -> str:
    cpu = [f"{1e3 * percentile(row.cpu_s, share):.2f}" for share in (0.5, 0.99)] if row.cpu_s else ["–", "–"]
    why = "; ".join(f"{n} × {_cell(reason)}" for reason, n in sorted(row.skipped.items())) or "–"
    return f"| `{row.subject}` | {row.passed} of {row.total} | {' | '.join(cpu)} | {why} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
