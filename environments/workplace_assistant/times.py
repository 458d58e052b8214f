"""Times as the reference reads them: what a pandas `Timestamp` accepts.

Invariant: reading is bounded; a text that is no time is a `ValueError`, whatever the parser makes of it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

MAX_LENGTH = 100
"""The longest spelling of a time with its zone has about 40 characters; the parser's time is not linear in nonsense."""

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - times of the databases have no zone
_MISSING = frozenset({"", "nan", "NaN", "NAN", "NaT", "nat", "NAT"})
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?)?")
_MONTHS = ("%Y-%m", "%b %Y", "%B %Y", "%b-%Y")
_QUARTER = re.compile(r"(\d{4})-?[Qq]([1-4])")
_NO_DATE = re.compile(r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*[.,]?|[+-]?\d{1,3}(?:\.\d*)?|[a-z])", re.IGNORECASE)


def read_time(value: Any, now: float) -> datetime | None:
    """The time in a text, or None for one that says "no time" (`NaT`); `now` is a Unix time.

    A number counts nanoseconds since 1970. Raises `ValueError` for everything else.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is no time")  # noqa: TRY004 - one error for whatever cannot be read
    if not isinstance(value, str):
        return _since_epoch(value)
    if value.strip() in ("now", "today"):
        return datetime.fromtimestamp(now, UTC).replace(tzinfo=None)
    if len(value) > MAX_LENGTH:
        raise ValueError("too long for a time")
    return _parsed(value, datetime.fromtimestamp(now, UTC).date().toordinal())


def _since_epoch(nanoseconds: float) -> datetime | None:
    if nanoseconds != nanoseconds:  # noqa: PLR0124 - NaN
        return None
    try:
        return _EPOCH + timedelta(microseconds=int(nanoseconds) // 1_000)
    except OverflowError as e:
        raise ValueError("out of range") from e


@lru_cache(maxsize=65_536)
def _parsed(text: str, today: int) -> datetime | None:
    """`today`, as an ordinal, is the date of a text that has only a time of day."""
    if text in _MISSING:
        return None
    text = text.strip()
    if _ISO.fullmatch(text):
        return datetime.fromisoformat(text)
    if re.fullmatch(r"\d{4}", text):
        return datetime(int(text), 1, 1)  # noqa: DTZ001
    if quarter := _QUARTER.fullmatch(text):
        return datetime(int(quarter[1]), 3 * int(quarter[2]) - 2, 1)  # noqa: DTZ001
    if _NO_DATE.fullmatch(text):
        raise ValueError(f"{text!r} is no time")
    return _month(text) or _free(text, datetime.fromordinal(today))


def _month(text: str) -> datetime | None:
    for form in _MONTHS:
        try:
            return datetime.strptime(text, form)  # noqa: DTZ007
        except ValueError:
            continue
    return None


def _free(text: str, default: datetime) -> datetime:
    from dateutil import parser  # type: ignore[import-untyped]

    try:
        found: datetime = parser.parse(text, default=default)
    except Exception as e:
        raise ValueError(f"{text!r} is no time: {e}") from e
    return found
