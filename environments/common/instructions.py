"""Instructions that a program can check: kinds by name, the answer they are checked on, and how verdicts are added up.

Shared by the environments whose rows carry `instruction_id_list` and `kwargs`. Invariant: whatever a row or an answer holds,
a check ends in bounded time with true or false, and a false that is the row's fault says so; only what is wrong with this
installation is an error.
"""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from environments.common import english
from environments.common.rule_sentences import rule_sentences
from environments.common.searches import SearchTimeoutError, compiled, matches
from environments.response import Response
from schemas.errors import DataError, RolloutError

F = TypeVar("F", bound=Callable[..., bool])

SEARCH_LIMIT_S = 2.0
"""CPU time for all patterns of one row together. An ordinary keyword takes 10 to 50 ms on a megabyte; what takes longer than
this is backtracking."""


class InstructionError(Exception):
    """An instruction that cannot be checked: unknown kind, missing number, no pattern, or too long an answer."""


@dataclass(slots=True)
class _Spent:
    """What the checks of one answer have used up: the end of their searching (thread time), and whether NLTK gave up."""

    until: float | None = None
    too_long: bool = False


@dataclass(frozen=True)
class Answer:
    """The text that is checked, and what several checks make of it, each made once.

    `tokens`, `tokens_of` and `punkt_sentences` raise `InstructionError` when the text is too long for NLTK.
    """

    text: str
    data_dir: Path | None = None
    _spent: _Spent = field(default_factory=_Spent)

    @cached_property
    def words(self) -> list[str]:
        """Between white space."""
        return self.text.split()

    @cached_property
    def tokens(self) -> list[str]:
        """NLTK's words and punctuation marks."""
        return self.tokens_of(self.text)

    @cached_property
    def rule_sentences(self) -> list[str]:
        """Sentences by the rules of `rule_sentences`."""
        return rule_sentences(self.text)

    @cached_property
    def punkt_sentences(self) -> list[str]:
        """Sentences by NLTK's model."""
        return self._by_nltk(english.sentences, self.text)

    @cached_property
    def language(self) -> str | None:
        """Code of its language; None when there is nothing to judge by."""
        return english.language(self.text)

    def tokens_of(self, sentence: str) -> list[str]:
        """NLTK's words and punctuation marks of a part of the text."""
        return self._by_nltk(english.tokens, sentence)

    def _by_nltk(self, cut: Callable[[str, Path | None], list[str]], text: str) -> list[str]:
        try:
            if not self._spent.too_long:
                return cut(text, self.data_dir)
        except TimeoutError:
            self._spent.too_long = True
        raise InstructionError("the answer is too long to be cut into sentences")

    def found(self, pattern: str, flags: int = re.IGNORECASE, *, within: str | None = None) -> list[str]:
        """What a pattern of the row matches in the text (or in `within`), one after another. Raises `InstructionError`."""
        searchable = compiled(pattern, flags)
        if searchable is None:
            raise InstructionError(f"{pattern[:100]!r} is no regular expression, or too large a one")
        until = self._spent.until = self._spent.until or time.thread_time() + SEARCH_LIMIT_S
        try:
            each = matches(searchable, self.text if within is None else within, until)
            found = {m.span(): m[0] for m in each}  # they may begin again
        except SearchTimeoutError:
            last = f"the row's patterns took longer than {SEARCH_LIMIT_S:g} s; the last: {pattern[:100]!r}"
            raise InstructionError(last) from None
        return list(found.values())


class Kinds:
    """Checks by the names that rows call them: functions of an `Answer` and the row's keyword arguments."""

    def __init__(self) -> None:
        self._checks: dict[str, tuple[Callable[..., bool], frozenset[str]]] = {}

    @property
    def names(self) -> list[str]:
        """Every kind."""
        return sorted(self._checks)

    def kind(self, *names: str) -> Callable[[F], F]:
        """Register a check. All of its parameters but the first are the row's and have None as default."""

        def register(check: F) -> F:
            taken = frozenset(list(inspect.signature(check).parameters)[1:])
            self._checks |= dict.fromkeys(names, (check, taken))
            return check

        return register

    def follows(self, name: str, arguments: Mapping[str, Any], answer: Answer) -> bool:
        """Whether the answer follows the instruction; what a check stumbles over counts as false.

        Raises `InstructionError` when that is the row's fault.
        """
        if name not in self._checks:
            raise InstructionError("unknown kind of instruction")
        check, taken = self._checks[name]
        if not arguments.keys() <= taken:
            raise InstructionError(f"it takes no {', '.join(sorted(arguments.keys() - taken))}")
        try:
            return bool(check(answer, **arguments))
        except (InstructionError, RolloutError):
            raise
        except Exception:  # noqa: BLE001 - an answer too short, a value of the wrong type: the reference counts both as false
            return False


@dataclass(frozen=True, slots=True)
class Followed:
    """Which instructions an answer follows, in their order, and what is wrong with those that cannot be checked."""

    each: list[bool]
    problems: dict[str, str]

    @property
    def all(self) -> bool:
        """Whether it follows every one (also when there is none)."""
        return all(self.each)


def check_all(kinds: Kinds, names: Sequence[str], arguments: Sequence[Mapping[str, Any] | None], answer: Answer) -> Followed:
    """Check each instruction with its arguments (nulls left out); the surplus of the longer list is ignored."""
    each: list[bool] = []
    problems: dict[str, str] = {}
    for i, (name, given) in enumerate(zip(names, arguments, strict=False)):
        try:
            each.append(kinds.follows(name, {k: v for k, v in (given or {}).items() if v is not None}, answer))
        except InstructionError as e:
            each.append(False)
            problems[str(i)] = f"{name}: {e}"
    return Followed(each, problems)


Mode = Literal["binary", "fraction"]


def reward(each: Sequence[bool], mode: str) -> float:
    """1.0 or 0.0 for all in mode `binary`, the share of true ones in `fraction`. Raises `DataError` for another mode."""
    if mode == "binary":
        return float(all(each))
    if mode == "fraction":
        return sum(each) / len(each) if each else 0.0
    raise DataError(f"grading_mode must be 'binary' or 'fraction', found {mode!r}")


def last_item_text(response: Response) -> str:
    """The text of the first content part of the last output item, whatever kind of item it is; else empty."""
    items = response.output
    content = items[-1].get("content") if items else None
    part = content[0] if isinstance(content, list) and content else content
    text = part.get("text") if isinstance(part, Mapping) else part
    return text if isinstance(text, str) else ""


def number(name: str, value: Any, *, least: float = 0) -> float:
    """`value` when it is a number of at least `least`; raises `InstructionError`."""
    if isinstance(value, int | float) and value >= least:
        return value
    raise InstructionError(f"{name} must be a number of at least {least:g}, found {value!r}")


def whole(name: str, value: Any, *, least: int = 1) -> int:
    """`value` when it is a whole number of at least `least`, as a place is counted; raises `InstructionError`."""
    if isinstance(value, int) and value >= least:
        return value
    raise InstructionError(f"{name} must be a whole number of at least {least}, found {value!r}")


def text_of(name: str, value: Any) -> str:
    """`value` when it is a text that is not empty; raises `InstructionError`."""
    if isinstance(value, str) and value:
        return value
    raise InstructionError(f"{name} must be a text, found {value!r}")


def texts_of(name: str, value: Any) -> Iterable[str]:
    """`value` when it is a list of texts, not empty; raises `InstructionError`."""
    if isinstance(value, list) and value and all(isinstance(v, str) for v in value):
        return value
    raise InstructionError(f"{name} must be a list of texts, found {value!r}")


def in_relation(count: float, relation: Any, threshold: float) -> bool:
    """`less than` or `at least`; raises `InstructionError` for any other text."""
    if relation == "less than":
        return count < threshold
    if relation == "at least":
        return count >= threshold
    raise InstructionError(f"the relation must be 'less than' or 'at least', found {relation!r}")
