"""How large a regular expression becomes when it is compiled, told from its text without compiling it.

`regex` writes a repeat out as often as it must match, so `(?:(?:a{1000}){1000}){1000}` fills any memory while it holds the
interpreter; `re` fills tables of 65,536 entries for sets beyond Latin-1. Both are counted here in one pass over the source.

Invariants: the pass is linear in the source, and reads it as `re` does. `Size.source` means to `regex` what the source means to
`re`: a brace that repeats nothing and a bracket within a set are escaped, which `regex` takes for fuzzy matching and classes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_PATTERN_LENGTH = 4_096
"""Patterns of the published data sets stay under 200 characters."""

MAX_DEPTH = 50
"""Groups within groups. Both compilers recurse, and find the end of the stack between 90 and 300 levels."""

MAX_NODES = 50_000
"""What is written out, in characters, sets, groups and alternatives: about 1 µs and 200 bytes each."""

MAX_TABLES = 200_000
"""Entries, in units of about 1 µs, of the tables for sets beyond Latin-1."""

LONG_REPEAT = 256
"""Repeats of a single set from here on are searched in one step that no time limit interrupts."""

MAX_DIGITS = 9
"""Of a number of repeats: both compilers end at 4,294,967,295."""

LATIN = 0xFF
"""The last character for which `re` needs no large table."""

_BEYOND_LATIN = 2_000
_PER_RANGE = 8
_PER_CLASS = 12
_PER_ALTERNATIVE = 1
_TABLE = 65_536
_HYPHEN, _CLASS = -1, -2
_CLASSES = frozenset("dDsSwW")
_ENTRIES_PER_UNIT = 5
_REPEAT = re.compile(r"\{(\d*)(?:(,)(\d*))?\}", re.ASCII)
_OPENING = re.compile(r"\(\?(?:P<\w*>|P=\w*|<[=!]|\(\w*\)|#[^)]*|[a-zA-Z-]*(?=[:)])|.)?", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:N\{[^}]*\}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|.)", re.DOTALL)


class OversizeError(ValueError):
    """The pattern is too long, too deep or too large to be compiled."""


@dataclass(frozen=True, slots=True)
class Size:
    """`nodes` are written out; a search tests up to `tests` set members a character, `loop` of them without a pause."""

    source: str
    nodes: int
    tests: int
    loop: int


@dataclass(slots=True)
class _Level:
    nodes: int = 1
    tests: int = 0
    atom: tuple[int, int] = (0, 0)  # nodes and tests of what a repeat would repeat

    def add(self, nodes: int, tests: int) -> None:
        self.nodes += nodes
        self.tests += tests
        self.atom = (nodes, tests)


@dataclass(slots=True)
class _Scan:
    source: str
    at: int = 0
    tables: int = 0
    loop: int = 0
    verbose: bool = False
    levels: list[_Level] = field(default_factory=lambda: [_Level()])
    written: list[str] = field(default_factory=list)

    def run(self) -> Size:
        while self.at < len(self.source):
            start, char = self.at, self.source[self.at]
            _STEPS.get(char, _Scan.read_literal)(self)
            if char not in "{[(":
                self.written.append(self.source[start : self.at])
            if self.levels[-1].nodes > MAX_NODES or self.tables > MAX_TABLES:
                raise OversizeError("the pattern is too large")
        while len(self.levels) > 1:  # not closed: `re` will refuse it
            self.read_close()
        whole = self.levels[0]
        return Size("".join(self.written), whole.nodes, whole.tests, whole.tests if self.verbose else self.loop)

    def read_literal(self) -> None:
        self.at += 1
        self.levels[-1].add(1, 0)

    def read_escape(self) -> None:
        found = _ESCAPE.match(self.source, self.at)
        self.at = found.end() if found else self.at + 1
        self.levels[-1].add(1, _PER_CLASS if found and found[0][1:] in _CLASSES else 1)

    def read_alternative(self) -> None:
        self.at += 1
        level = self.levels[-1]
        level.nodes += 2
        level.tests += _PER_ALTERNATIVE  # single characters as alternatives become a set, and so do first characters
        level.atom = (0, 0)

    def _verbose(self) -> None:
        """Blanks may now stand before a repeat, comments hide anything, and the two libraries differ on both."""
        if re.search(r"[{#\[]", self.source):
            raise OversizeError("the pattern is in verbose form, with braces, brackets or comments")
        self.verbose = True

    def read_open(self) -> None:
        start = self.at
        opening = _OPENING.match(self.source, self.at)
        head = opening[0] if opening else "("
        self.at += len(head)
        if head.startswith("(?#"):
            self.at += 1  # its closing parenthesis
            self.written.append("(?#)")  # `regex` knows escapes in comments
            return
        if head.startswith("(?P="):
            self.at += 1
            self.levels[-1].add(1, 0)
        self.written.append(self.source[start : self.at])
        if head.startswith("(?P="):
            return
        if "x" in head and re.fullmatch(r"\(\?[a-zA-Z-]*", head):
            self._verbose()
        if len(self.levels) > MAX_DEPTH:
            raise OversizeError(f"the pattern has more than {MAX_DEPTH} groups within each other")
        self.levels.append(_Level(nodes=3))

    def read_close(self) -> None:
        self.at += 1
        if len(self.levels) > 1:
            group = self.levels.pop()
            self.levels[-1].add(group.nodes, group.tests)

    def read_star(self) -> None:
        self.at += 1
        self._repeated(0, None)

    def read_plus(self) -> None:
        self.at += 1
        self._repeated(1, None)

    def read_optional(self) -> None:
        self.at += 1
        self.levels[-1].nodes += 1

    def read_brace(self) -> None:
        found = _REPEAT.match(self.source, self.at)
        if found is None or not (found[1] or found[2]):
            self.written.append("\\{")
            self.read_literal()
            return
        self.at = found.end()
        self.written.append(found[0])
        if max(len(found[1]), len(found[3] or "")) > MAX_DIGITS:
            raise OversizeError("the pattern repeats something too often")
        least = int(found[1] or 0)
        self._repeated(least, (int(found[3]) if found[3] else None) if found[2] else least)

    def _repeated(self, least: int, most: int | None) -> None:
        level = self.levels[-1]
        nodes, tests = level.atom
        level.nodes += nodes * max(least - 1, 0) + 2
        level.atom = (nodes * max(least, 1) + 2, tests)
        if most is None or most >= LONG_REPEAT:
            self.loop = max(self.loop, tests)

    def read_set(self) -> None:
        start = self.at
        self.at += 1
        if self.source.startswith("^", self.at):
            self.at += 1
        self.written.append(self.source[start : self.at])
        members = self._members()
        tests = entries = position = 0
        while position < len(members):
            is_range = position + 2 < len(members) and members[position + 1] == _HYPHEN
            if is_range:
                entries += max(min(members[position + 2], _TABLE) - max(members[position], 0), 0)
            tests += _PER_RANGE if is_range else _PER_CLASS if members[position] == _CLASS else 1
            position += 3 if is_range else 1
        self.tables += (_BEYOND_LATIN if max(members, default=0) > LATIN else 0) + entries // _ENTRIES_PER_UNIT
        self.levels[-1].add(1 + tests, tests)

    def _members(self) -> list[int]:
        """Code points up to the closing bracket, `_HYPHEN` and `_CLASS`."""
        members: list[int] = []
        while self.at < len(self.source):
            char = self.source[self.at]
            if char == "]" and members:
                break
            found = _ESCAPE.match(self.source, self.at)
            text = found[0] if found else char
            self.written.append("\\[" if text == "[" else text)
            self.at += len(text)
            members.append(_HYPHEN if text == "-" else _code_point(text))
        self.written.append(self.source[self.at : self.at + 1])
        self.at += 1
        return members


_STEPS: dict[str, Callable[[_Scan], None]] = {
    "\\": _Scan.read_escape,
    "|": _Scan.read_alternative,
    "(": _Scan.read_open,
    ")": _Scan.read_close,
    "*": _Scan.read_star,
    "+": _Scan.read_plus,
    "?": _Scan.read_optional,
    "{": _Scan.read_brace,
    "[": _Scan.read_set,
}


def _code_point(text: str) -> int:
    if not text.startswith("\\"):
        return ord(text)
    kind, digits = text[1:2], text[2:]
    if kind in {"x", "u", "U"} and digits:
        return int(digits, 16)
    if kind == "N":
        return _TABLE  # some name: as far out as tables go
    return _CLASS if kind in _CLASSES else ord(kind or "\\")


def size_of(source: str) -> Size:
    """The size of a pattern. Raises `OversizeError`, which says what is too large; whether it is valid is not looked at."""
    if len(source) > MAX_PATTERN_LENGTH:
        raise OversizeError(f"the pattern is longer than {MAX_PATTERN_LENGTH:,} characters")
    return _Scan(source).run()
