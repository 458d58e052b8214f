"""Custom answer patterns: regular expressions that the row brings, run on text that the model wrote.

Invariant: however bad the patterns and the text, all of a row's searches together end in bounded time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

from environments.common.searches import MAX_TRIES, SearchTimeoutError, compiled, matches

__all__ = ["MAX_TRIES", "TIME_LIMIT_S", "PatternError", "last_captures"]

TIME_LIMIT_S = 0.5
"""CPU time of the searching thread for all patterns of a row together. An ordinary pattern takes 10 to 50 ms on a megabyte of
text; whatever takes ten times that is backtracking, and would still be at it tomorrow."""


class PatternError(Exception):
    """The pattern was refused: it ran past the time limit, or has several groups and thus no one capture."""


def last_captures(patterns: object, text: str) -> Iterator[str]:
    """For each pattern in turn that matches: the last match's group 1, or the whole match when there are no groups.

    `patterns` is what the row holds: a text, a list of texts, or anything else, which counts as no pattern. A pattern that
    does not compile matches nothing. Raises `PatternError`.
    """
    end = time.thread_time() + TIME_LIMIT_S
    for source in patterns if isinstance(patterns, list) else [patterns]:
        pattern = compiled(source, re.IGNORECASE) if isinstance(source, str) else None
        found = None if pattern is None else _last(pattern, text, end)
        if found is not None:
            yield found


def _last(pattern: Any, text: str, end: float) -> str | None:
    last = None
    try:
        for last in matches(pattern, text, end):  # noqa: B007 - the last one is what is wanted
            pass
    except SearchTimeoutError:
        raise PatternError(f"output_regex took longer than {TIME_LIMIT_S} s") from None
    if last is None:
        return None
    if pattern.groups > 1:
        raise PatternError(f"output_regex has {pattern.groups} groups; it may have one")
    return last[1 if pattern.groups else 0] or ""
