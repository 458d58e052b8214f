"""Custom answer patterns: regular expressions that the row brings, run on text that the model wrote.

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

TIME_LIMIT_S = 0.5
"""CPU time of the searching thread for all patterns of a row together. An ordinary pattern takes 10 to 50 ms on a megabyte of
text; whatever takes ten times that is backtracking, and would still be at it tomorrow."""

MAX_TRIES = 4
"""`regex` measures a search's limit in CPU time of the whole process, so busy neighbours can cut an honest search short: it
is tried again with twice the limit, up to eight times, and only its own thread's time counts against it."""

MAX_PATTERN_LENGTH = 4_096
"""Compiling has no time limit, so its input has one. Patterns of the published data sets stay under 200 characters."""


class PatternError(Exception):
    """The pattern was refused: it ran past the time limit, or has several groups and thus no one capture."""


def last_captures(patterns: object, text: str) -> Iterator[str]:
    """For each pattern in turn that matches: the last match's group 1, or the whole match when there are no groups.

    `patterns` is what the row holds: a text, a list of texts, or anything else, which counts as no pattern. A pattern that
    does not compile matches nothing. Raises `PatternError`.
    """
    end = time.thread_time() + TIME_LIMIT_S
    for source in patterns if isinstance(patterns, list) else [patterns]:
        pattern = _compiled(source) if isinstance(source, str) else None
        found = None if pattern is None else _last(pattern, text, end)
        if found is not None:
            yield found


def _last(pattern: Any, text: str, end: float) -> str | None:
    last = None
    for last in _matches(pattern, text, end):  # noqa: B007 - the last one is what is wanted
        pass
    if last is None:
        return None
    if pattern.groups > 1:
        raise PatternError(f"output_regex has {pattern.groups} groups; it may have one")
    return last[1 if pattern.groups else 0] or ""


def _matches(pattern: Any, text: str, end: float) -> Iterator[Any]:
    """The matches in order; after a search that was cut short, from the first one again."""
    for attempt in range(MAX_TRIES):
        left = end - time.thread_time()
        if left <= 0:
            break
        try:
            yield from pattern.finditer(text, timeout=left * 2**attempt)
            return
        except TimeoutError:
            continue
    raise PatternError(f"output_regex took longer than {TIME_LIMIT_S} s")


@functools.lru_cache(maxsize=512)
def _compiled(source: str) -> Any | None:
    if len(source) > MAX_PATTERN_LENGTH:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # `re` on sets that may one day mean something else
            re.compile(source, re.IGNORECASE)
        return regex.compile(source, regex.IGNORECASE | regex.VERSION0)  # type: ignore[no-untyped-call]
    except (re.error, regex.error, RecursionError, OverflowError, ValueError):
        return None
