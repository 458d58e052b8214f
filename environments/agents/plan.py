"""A plan of numbered steps in a model's text: `Plan: <reason> #E1 = Word[input]` (agents.md, "rewoo").

Invariant: reading takes time linear in the text, whatever is in it. One pattern for a whole step would try every way to
divide a line between reason and step.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

_PLAN = re.compile(r"Plan:\s*+")
_HEAD = re.compile(r"(#E\d++)\s*+=\s*+(\w++)\s*+\[")
_LABEL = re.compile(r"#E\d++")
_BLANK = re.compile(r"\s*+")


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One step: why, the label of its result (`#E1`), the word before the bracket, and the input in it."""

    reason: str
    label: str
    word: str
    input: str

    def given(self, results: Mapping[str, str]) -> str:
        """The input with the labels of earlier steps replaced by their results."""
        return _LABEL.sub(lambda m: results.get(m[0], m[0]), self.input)


def read_plan(text: str, limit: int) -> list[PlanStep]:
    """The steps of a plan in order, the first `limit` of them.

    A step's head follows its reason on the same line, or begins the next one; of several on the line the last counts, and
    what is before it is reason. The input ends at the first closing bracket.
    """
    return list(islice(_steps(text), limit))


def _steps(text: str) -> Iterator[PlanStep]:
    heads = _heads(text)
    starts = [h.start() for h, _ in heads]
    done, line = 0, (0, 0)
    for plan in _PLAN.finditer(text):
        if plan.start() < done:
            continue
        if not line[0] <= plan.end() <= line[1]:
            end = text.find("\n", plan.end())
            line = (plan.end(), len(text) if end < 0 else end)
        found = _head_of(text, starts, plan.start() + len("Plan:"), line[1])
        if found is None:
            continue
        head, close = heads[found]
        reason = text[plan.end() : head.start()].strip()
        yield PlanStep(reason, head[1], head[2], text[head.end() : close])
        done = close + 1


def _head_of(text: str, starts: Sequence[int], begin: int, line_end: int) -> int | None:
    """The head that begins the line after `line_end`, else the last one on the line, with a reason before it."""
    blank = _BLANK.match(text, line_end)
    after = bisect_left(starts, blank.end() if blank else line_end)
    if blank and after < len(starts) and starts[after] == blank.end():
        return after
    before = bisect_left(starts, line_end) - 1
    return before if before >= 0 and starts[before] > begin else None


def _heads(text: str) -> list[tuple[re.Match[str], int]]:
    """Every head whose bracket is closed and not empty, with the place of its closing bracket."""
    found: list[tuple[re.Match[str], int]] = []
    close, searched = -1, len(text)
    for head in reversed(list(_HEAD.finditer(text))):
        nearer = text.find("]", head.end(), searched)
        close, searched = (nearer if nearer >= 0 else close), head.end()
        if close > head.end():
            found.append((head, close))
    return found[::-1]
