"""Words of a command line that change a configuration: `key=value`, `+key=value`, `++key=value`, `~key`.

Owns their grammar, which is Hydra's basic override grammar: values are quoted or bare strings, numbers, true, false, null,
`[lists]` and `{maps}`. Invariant: a word that is no override is an error that shows where it breaks, never half of one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rollstream.nemo_gym.errors import ConfigurationError

MAX_DEPTH = 64
"""Lists and maps inside each other; deeper ones are no configuration, and would exhaust the stack."""

_WORD = re.compile(r"(\+\+|\+|~)?([^\s=+~][^=]*)(?:=(.*))?", re.DOTALL)
_INTEGER = re.compile(r"[+-]?\d+(_\d+)*")
_FLOAT = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)", re.IGNORECASE)
_CONSTANTS = {"null": None, "true": True, "false": False}


class Mode(StrEnum):
    """What a word does: change a key that is there, add one (or change it), or delete it."""

    CHANGE = ""
    ADD = "+"
    FORCE = "++"
    DELETE = "~"


@dataclass(frozen=True, slots=True)
class Override:
    """One word: the parts of its dotted key, its value, its mode."""

    path: tuple[str, ...]
    value: Any
    mode: Mode

    @property
    def key(self) -> str:
        """The dotted key."""
        return ".".join(self.path)


def parse(word: str) -> Override:
    """The override that `word` is; raises `ConfigurationError`."""
    found = _WORD.fullmatch(word)
    mode = Mode(found[1] or "") if found else None
    if found is None or mode is None or (found[3] is None) is not (mode is Mode.DELETE):
        raise ConfigurationError(f"{_shown(word)}: write key=value, +key=value, ++key=value or ~key")
    path = tuple(part.strip() for part in found[2].split("."))
    if not all(path):
        raise ConfigurationError(f"{_shown(word)}: a part of the key is empty")
    return Override(path, None if mode is Mode.DELETE else _value(found[3], word), mode)


def tree(overrides: list[Override]) -> dict[str, Any]:
    """What the words set, as one tree: a later word wins, and a map goes into the one that is there.

    Raises `ConfigurationError` for a key under a plain value.
    """
    root: dict[str, Any] = {}
    for override in overrides:
        if override.mode is Mode.DELETE:
            continue
        place = root
        for name in override.path[:-1]:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise ConfigurationError(f"{override.key}: {name} was set to a plain value by an earlier word")
        _put(place, override.path[-1], override.value)
    return root


def _put(place: dict[str, Any], name: str, value: Any) -> None:
    before = place.get(name)
    if isinstance(before, dict) and isinstance(value, dict):
        for key, inner in value.items():
            _put(before, key, inner)
    else:
        place[name] = dict(value) if isinstance(value, dict) else value


def _value(text: str, word: str) -> Any:
    reader = _Reader(text, word)
    value = reader.value(0, lambda _: False)
    if reader.at < len(text):
        raise reader.error("something follows the value")
    return value


def _shown(word: str) -> str:
    return repr(word if len(word) <= 120 else word[:119] + "…")  # noqa: PLR2004 - a line of a terminal


class _Reader:
    """Reads one value from left to right; `at` is how far it is."""

    def __init__(self, text: str, word: str) -> None:
        self.text, self.word, self.at = text, word, 0

    def error(self, what: str) -> ConfigurationError:
        return ConfigurationError(f"{_shown(self.word)}: {what} at character {self.at + 1} of the value")

    def value(self, depth: int, ends: Callable[[str], bool]) -> Any:
        """A value that goes on to the end of the text or a character that `ends` it."""
        if depth > MAX_DEPTH:
            raise self.error(f"more than {MAX_DEPTH} lists inside each other")
        self._blanks()
        first = self._next()
        if first == "[":
            found: Any = self._list(depth)
        elif first == "{":
            found = self._map(depth)
        elif first and first in "'\"":
            found = self._quoted(first)
        else:
            return _plain(self._bare(ends))
        self._blanks()
        return found

    def _list(self, depth: int) -> list[Any]:
        found: list[Any] = []
        self._take("[")
        while not self._closed("]", bool(found)):
            found.append(self.value(depth + 1, ",]".__contains__))
        return found

    def _map(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self._take("{")
        while not self._closed("}", bool(found)):
            self._blanks()
            first = self._next()
            key = self._quoted(first) if first and first in "'\"" else self._bare(":,}".__contains__)
            self._blanks()
            self._take(":")
            found[key] = self.value(depth + 1, ",}".__contains__)
        return found

    def _closed(self, end: str, more: bool) -> bool:
        """Whether the list or map ends here; takes the end, or the comma before what follows."""
        self._blanks()
        if self._next() == end:
            self.at += 1
            return True
        if more:
            self._take(",")
        return False

    def _quoted(self, quote: str) -> str:
        start = self.at
        self.at += 1
        parts = []
        while self._next() != quote:
            if self._next() == "\\" and self.text[self.at + 1 : self.at + 2] in (quote, "\\"):
                self.at += 1
            if not self._next():
                self.at = start
                raise self.error("a quote that does not end")
            parts.append(self._next())
            self.at += 1
        self.at += 1
        return "".join(parts)

    def _bare(self, ends: Callable[[str], bool]) -> str:
        """A string without quotes; `${…}` in it is taken whole."""
        start, open_ = self.at, 0
        while (c := self._next()) and (open_ or not ends(c)):
            if self.text.startswith("${", self.at):
                open_, self.at = open_ + 1, self.at + 2
                continue
            open_ -= open_ > 0 and c == "}"
            self.at += 1
        return self.text[start : self.at].strip()

    def _take(self, wanted: str) -> None:
        if self._next() != wanted:
            raise self.error(f"{wanted!r} is missing")
        self.at += 1

    def _next(self) -> str:
        return self.text[self.at : self.at + 1]

    def _blanks(self) -> None:
        while self._next().isspace():
            self.at += 1


def _plain(text: str) -> Any:
    lower = text.lower()
    if lower in _CONSTANTS:
        return _CONSTANTS[lower]
    if _INTEGER.fullmatch(text) and len(text) < 4_000:  # noqa: PLR2004 - Python itself refuses longer ones
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
