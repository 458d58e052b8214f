r"""Lines of a dataset, with their numbers.

Invariant: memory is bounded by one line of at most `MAX_PROMPT_BYTES`, whatever the file holds; line terminators (`\n`,
`\r\n`), a byte order mark at the beginning and blank lines are no part of any row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from rollstream.runfiles.problems import RowProblem
from schemas.topics import MAX_PROMPT_BYTES

_BOM = b"\xef\xbb\xbf"
KEPT_BYTES = 64 << 10
"""Of a row that is too long, this much is kept for the report."""


@dataclass(frozen=True, slots=True)
class Line:
    """The text of one row."""

    number: int
    text: bytes


def read_lines(file: BinaryIO, name: str, limit: int = 0) -> Iterator[Line | RowProblem]:
    """At most `limit` rows of `file` (0: all); a row longer than any prompt may be is a problem, and the next one follows."""
    number = count = 0
    while chunk := file.readline(MAX_PROMPT_BYTES + 2):
        number += 1
        text = chunk.removeprefix(_BOM) if number == 1 else chunk
        whole = text.endswith(b"\n") or len(chunk) < MAX_PROMPT_BYTES + 2
        if not whole:
            _skip(file)
        text = text.removesuffix(b"\n").removesuffix(b"\r")
        if not text.strip():
            continue
        count += 1
        if not whole or len(text) > MAX_PROMPT_BYTES:
            yield RowProblem(name, number, f"the row has more than {MAX_PROMPT_BYTES:,} bytes", text[:KEPT_BYTES])
        else:
            yield Line(number, text)
        if count == limit:
            return


def _skip(file: BinaryIO) -> None:
    """Past the end of the line that is being read."""
    while (chunk := file.readline(1 << 20)) and not chunk.endswith(b"\n"):
        pass
