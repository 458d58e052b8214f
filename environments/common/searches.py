"""Searches with patterns that a row brings, in text that a model wrote.

Invariant: however bad the pattern and the text, compiling and searching end in bounded time and memory. `regex` stands in for
`re` because its searches can be given a time limit; a pattern that `re` refuses is refused here too, so both read the same
language.
"""

from __future__ import annotations

import re
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import regex

from environments.common.pattern_size import Size, size_of

MAX_TRIES = 4
"""`regex` measures a search's limit in CPU time of the whole process, so busy neighbours can cut an honest search short: it
is tried again with twice the limit, up to eight times, and only its own thread's time counts against it."""

MAX_TESTS = 1_000_000_000
"""Set members times characters of text: looking for where a match may begin is one step, at 0.5 to 1 ns each."""

MAX_LOOP_TESTS = 32_000_000
"""The same for a set in a repeat: `regex` looks at its limit after about a hundred such steps, which thus take 2 to 4 s."""

MAX_CACHED = 512
MAX_CACHED_NODES = 500_000
"""About 100 MB."""


class SearchTimeoutError(Exception):
    """The search ran past its time limit."""


def matches(pattern: Any, text: str, end: float) -> Iterator[Any]:
    """The matches of a `compiled` pattern in order; after a search that was cut short, from the first one again.

    `end` is in seconds of `time.thread_time()`. Raises `SearchTimeoutError`.
    """
    for attempt in range(MAX_TRIES):
        left = end - time.thread_time()
        if left <= 0:
            break
        try:
            yield from pattern.finditer(text, timeout=left * 2**attempt)
            return
        except TimeoutError:
            continue
    raise SearchTimeoutError


def last_match(pattern: Any, text: str, limit_s: float) -> Any | None:
    """The last match, or None; `limit_s` is CPU time. Raises `SearchTimeoutError`."""
    last = None
    for last in matches(pattern, text, time.thread_time() + limit_s):  # noqa: B007 - the last one is what is wanted
        pass
    return last


@dataclass(frozen=True, slots=True)
class Searchable:
    """A compiled pattern that will not begin a search which its time limit could not end."""

    pattern: Any
    size: Size

    @property
    def groups(self) -> int:
        """Capturing groups."""
        return int(self.pattern.groups)

    def finditer(self, text: str, timeout: float) -> Iterator[Any]:
        """As `regex` has it. Raises `SearchTimeoutError` at once when the pattern's sets are too large for so long a text."""
        if self.size.loop * len(text) > MAX_LOOP_TESTS or self.size.tests * len(text) > MAX_TESTS:
            raise SearchTimeoutError
        return iter(self.pattern.finditer(text, timeout=timeout))


class _Cache:
    """The patterns last used, within a number and a total of nodes; what they hold in memory follows the nodes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[str, int], Searchable | None] = OrderedDict()
        self.nodes = 0

    def __len__(self) -> int:
        return len(self._held)

    def get(self, source: str, flags: int) -> Searchable | None:
        key = source, flags
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
        made = _compile(source, flags)
        with self._lock:
            if key not in self._held:
                self._held[key] = made
                self.nodes += _weight(source, made)
            while len(self._held) > MAX_CACHED or self.nodes > MAX_CACHED_NODES:
                (old, _), gone = self._held.popitem(last=False)
                self.nodes -= _weight(old, gone)
        return made


def _weight(source: str, made: Searchable | None) -> int:
    return len(source) + (made.size.nodes if made else 0)


def _compile(source: str, flags: int) -> Searchable | None:
    try:
        size = size_of(source)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # `re` on sets that may one day mean something else
            re.compile(source, flags)
        same = sum(getattr(regex, name) for name in ("IGNORECASE", "MULTILINE", "DOTALL") if flags & getattr(re, name))
        return Searchable(regex.compile(size.source, same | regex.VERSION0, cache_pattern=False), size)  # type: ignore[no-untyped-call]
    except (re.error, regex.error, RecursionError, OverflowError, ValueError):
        return None


_cache = _Cache()


def compiled(source: str, flags: int = 0) -> Searchable | None:
    """The pattern, or None when it does not compile or would be too large (`pattern_size`); `flags` are those of `re`."""
    return _cache.get(source, flags)
