"""Answers of a megabyte that make careless verifiers slow: for tests, and for `rollstream environment check`.

Each begs for one mistake: a pattern that backtracks, a scan that starts again at every candidate, a parser that recurses, a
conversion in quadratic time. Invariant: every text is plain data of `SIZE` characters, a little more at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

SIZE = 1 << 20

SHAPES = {
    "letters": "a",
    "blanks": " ",
    "line ends": "\n",
    "words": "word by word ",
    "digits": "9",
    "decimals": "1.",
    "open brackets": "([{<",
    "open boxes": "\\boxed{",
    "open fences": "```python\n",
    "open tags": "<think><answer>",
    "answer marks": "Answer: \n",
    "nested JSON": '{"a":[',
    "quotes": "\"'\\",
    "operators": "-(1+",
    "accents": "e\u0301\u0323",
    "wide characters": "\U0001f468\u200d\U0001f469\u200d",
}
"""What is repeated, by what it is."""


def megabyte(shape: str) -> str:
    """A megabyte of the shape called `shape`."""
    piece = SHAPES[shape]
    return piece * (SIZE // len(piece) + 1)


class _Megabytes(Mapping[str, str]):
    """All of them by name, each made when it is asked for."""

    def __getitem__(self, shape: str) -> str:
        return megabyte(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(SHAPES)

    def __len__(self) -> int:
        return len(SHAPES)


MEGABYTES: Mapping[str, str] = _Megabytes()
