"""Searches with patterns that a row brings, in text that a model wrote.

Invariant: however bad the pattern and the text, a search ends in bounded time. `regex` stands in for `re` because its
searches can be given a time limit; a pattern that `re` refuses is refused here too, so both read the same language.
"""

from __future__ import annotations

import functools
import re
import time
import warnings
from collections.abc import Iterator
from typing import Any

import regex

MAX_TRIES = 4
"""`regex` measures a search's limit in CPU time of the whole process, so busy neighbours can cut an honest search short: it
is tried again with twice the limit, up to eight times, and only its own thread's time counts against it."""

MAX_PATTERN_LENGTH = 4_096
"""Compiling has no time limit, so its input has one. Patterns of the published data sets stay under 200 characters."""


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


@functools.lru_cache(maxsize=512)
def compiled(source: str, flags: int = 0) -> Any | None:
    """The pattern, or None when it does not compile or is too long; `flags` are those of `re`."""
    if len(source) > MAX_PATTERN_LENGTH:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # `re` on sets that may one day mean something else
            re.compile(source, flags)
        same = sum(getattr(regex, name) for name in ("IGNORECASE", "MULTILINE", "DOTALL") if flags & getattr(re, name))
        return regex.compile(source, same | regex.VERSION0)  # type: ignore[no-untyped-call]
    except (re.error, regex.error, RecursionError, OverflowError, ValueError):
        return None
