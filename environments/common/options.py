"""Options of a multiple-choice question, and the small text rules that graders compare them by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

_FOREIGN = str.maketrans(
    {
        **dict(zip("\u0623\u0628\u062c\u062f", (" A", " B", " C", " D"), strict=True)),  # Arabic alif, ba, jim, dal
        **dict(zip("\u0985\u09ac\u09a1\u09a2", (" A", " B", " C", " D"), strict=True)),  # Bengali
        **dict(zip("\uff21\uff22\uff23\uff24", (" A", " B", " C", " D"), strict=True)),  # full-width Latin
    }
)

_WRAPPER = r"\text{"
_WRAPPERS = len(_WRAPPER) + len("}")


@dataclass(frozen=True)
class Options:
    """Option letters and texts, in the order of the row: pairs of upper-cased letter and text as written."""

    pairs: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, str | None]]) -> Options:
        """The options whose key is one alphabetic character and whose text is not null."""
        found = ((k, v) for row in rows for k, v in row.items() if len(k) == 1 and k.isalpha())
        return cls(tuple((k.upper(), v) for k, v in found if v is not None))

    @cached_property
    def letters(self) -> frozenset[str]:
        """The letters that may be answered."""
        return frozenset(letter for letter, _ in self.pairs)

    @cached_property
    def folded(self) -> tuple[tuple[str, str], ...]:
        """The pairs with their texts folded."""
        return tuple((letter, fold(text)) for letter, text in self.pairs)

    def letter_of(self, text: str) -> str | None:
        """Letter of the first option whose text equals `text` when both are folded."""
        wanted = fold(text)
        return next((letter for letter, known in self.folded if known == wanted), None)

    def allowed(self, letter: str) -> str | None:
        """`letter` upper-cased when it is an option's, else None."""
        upper = letter.upper()
        return upper if upper in self.letters else None


def fold(text: str) -> str:
    """Lower case, runs of blanks as one, none at the ends."""
    return " ".join(text.lower().split())


def with_latin_letters(text: str) -> str:
    """`text` with Arabic, Bengali and full-width option letters as a blank and A, B, C or D."""
    return text.translate(_FOREIGN)


def last_boxed(text: str) -> str | None:
    r"""Content of the last `\boxed{` up to its matching brace; None when there is no box or the last one is not closed."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    position = start = start + len("\\boxed{")
    depth = 1
    while depth:
        close = text.find("}", position)
        if close < 0:
            return None
        depth += text.count("{", position, close) - 1
        position = close + 1
    return text[start : position - 1]


def unwrap_text(text: str) -> str:
    r"""`text` without the `\text{ ... }` wrappers around all of it, nor the blanks just inside them.

    Works on two indices: cutting the text at each of a hundred thousand nested wrappers would be quadratic.
    """
    low, high = 0, len(text)
    while high - low >= _WRAPPERS and text.startswith(_WRAPPER, low) and text[high - 1] == "}":
        low, high = low + len(_WRAPPER), high - 1
        while low < high and text[low].isspace():
            low += 1
        while low < high and text[high - 1].isspace():
            high -= 1
    return text[low:high]
