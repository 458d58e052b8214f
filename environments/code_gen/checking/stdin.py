"""The standard streams that a program sees in a test: the reference's stand-ins, with their quirks (code_gen.md, "stdin")."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any


class Bytes:
    """`sys.stdin.buffer`: all of it, or its first line, again and again."""

    def __init__(self, text: str) -> None:
        self._data = text.encode("utf-8", "surrogatepass")

    def read(self, *_: Any) -> bytes:
        return self._data

    def readline(self, *_: Any) -> bytes:
        return self._data.split(b"\n", 1)[0] + b"\n"


class Stdin:
    """`sys.stdin`: reads lines as usual, but `read` gives the whole input always and `readlines` cuts line ends off."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._stream = io.StringIO(text)
        self.buffer = Bytes(text)

    def read(self, *_: Any) -> str:
        return self._text

    def readline(self, *arguments: Any) -> str:
        return self._stream.readline(*arguments)

    def readlines(self, *_: Any) -> list[str]:
        return self._text.split("\n")

    def __iter__(self) -> Iterator[str]:
        return iter(self._stream)

    def __next__(self) -> str:
        return next(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Stdout(io.StringIO):
    """`sys.stdout`: keeps what is written; closing it changes nothing."""

    def close(self, *_: Any) -> None:
        pass
