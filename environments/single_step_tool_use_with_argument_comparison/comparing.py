"""Comparing one call with an expected one.

Owns the rules of equality (the page's "Pair comparison"). Invariant: the time is linear in the two calls, and their nesting
costs no stack: what is compared lies on a list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from environments.common.arguments import decoded
from environments.single_step_tool_use_with_argument_comparison.categories import Category


class ExpectationError(ValueError):
    """The row's expected call has arguments that are not JSON, so nothing can be compared with it."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call: the tool's name and its arguments as JSON text; None for what was no text."""

    name: str | None
    arguments: str | None


@dataclass(frozen=True)
class Comparator:
    """Compares the calls of one rollout; keeps what it has worked out, because a batch compares every call with every other."""

    word_threshold: float
    float_threshold: float
    _values: dict[str, Any] = field(default_factory=dict)
    _words: dict[str, tuple[int, Counter[str]]] = field(default_factory=dict)

    def compare(self, expected: Call, actual: Call) -> Category:
        """`CALL` when they match, else the first reason why not.

        Raises `ExpectationError` for an expectation with a fitting name and arguments that are not JSON.
        """
        if expected.name != actual.name:
            return Category.UNEXPECTED_TOOL
        wanted, given = self._value(expected.arguments), self._value(actual.arguments)
        if isinstance(wanted, ValueError):
            raise ExpectationError(f"arguments of the expected call of {expected.name!r}: {wanted}")
        if isinstance(given, ValueError):
            return Category.DECODE
        return self._difference(wanted, given) or Category.CALL

    def _value(self, text: str | None) -> Any:
        """The decoded arguments, or the `ValueError` that says why there are none."""
        if text is None:
            return ValueError("not a JSON text")
        if text not in self._values:
            self._values[text] = _decoded(text)
        return self._values[text]

    def _difference(self, wanted: Any, given: Any) -> Category | None:
        """The first difference in the order of the expected value."""
        pairs = [(wanted, given)]
        while pairs:
            wanted, given = pairs.pop()
            different = _shape(wanted, given) or self._leaf(wanted, given)
            if different:
                return different
            pairs += reversed(list(_children(wanted, given)))
        return None

    def _leaf(self, wanted: Any, given: Any) -> Category | None:
        if isinstance(wanted, dict | list):
            return None
        if isinstance(wanted, float):
            same = abs(wanted - given) < self.float_threshold  # NaN and equal infinities never are, as in the reference
        elif isinstance(wanted, str):
            same = self._similar(wanted, given)
        else:
            same = wanted == given
        return None if same else Category.VALUE

    def _similar(self, wanted: str, given: str) -> bool:
        """Texts of one word must be identical; of longer ones enough words must be common.

        The similarity is divided by the sum of both lengths, so it is 0.5 at most.
        """
        (n, ours), (m, theirs) = self._counted(wanted), self._counted(given)
        if n < 2 or m < 2:  # noqa: PLR2004 - one word or none
            return wanted == given
        if len(ours) > len(theirs):
            ours, theirs = theirs, ours
        common = sum(min(count, theirs[word]) for word, count in ours.items() if word in theirs)
        return common / (n + m) >= self.word_threshold

    def _counted(self, text: str) -> tuple[int, Counter[str]]:
        if text not in self._words:
            words = text.lower().split()
            self._words[text] = (len(words), Counter(words))
        return self._words[text]


def _decoded(text: str) -> Any:
    try:
        return decoded(text)
    except ValueError as e:
        return e


def _shape(wanted: Any, given: Any) -> Category | None:
    """Type, keys and length. A boolean passes for an integer, because it is one in Python."""
    if not isinstance(given, type(wanted)):
        return Category.TYPE
    if isinstance(wanted, dict) and wanted.keys() != given.keys():
        return Category.KEYS
    if isinstance(wanted, list) and len(wanted) != len(given):
        return Category.LIST_LENGTH
    return None


def _children(wanted: Any, given: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(wanted, dict):
        yield from ((value, given[key]) for key, value in wanted.items())
    elif isinstance(wanted, list):
        yield from zip(wanted, given, strict=True)
