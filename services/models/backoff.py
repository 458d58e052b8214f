"""How long to wait before a call is tried again.

Pure functions; time and randomness come as arguments. Invariant: a wait is never negative and never above its cap,
whatever a server writes into Retry-After.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime

from services.models.endpoint import RetryBudget

_SECONDS = re.compile(r"[0-9]{1,12}(?:\.[0-9]{0,9})?", re.ASCII)
_MAX_EXPONENT = 30
"""2³⁰ half-seconds are beyond every cap; without it a large attempt number would overflow a float."""


def retry_after(headers: Mapping[str, str], *, wall_s: float, cap_s: float) -> float | None:
    """Seconds that a server asks us to wait, between 0 and `cap_s`, or None when it asks nothing intelligible.

    Reads `Retry-After` in both forms of RFC 9110 §10.2.3 (seconds, or an HTTP date compared with `wall_s`, Unix time),
    and `retry-after-ms`, which OpenAI sends and which is the finer of the two. Header names are looked up as written
    here, so `headers` should not mind the case.
    """
    ms = headers.get("retry-after-ms", "").strip()
    if _SECONDS.fullmatch(ms):
        return min(float(ms) / 1000, cap_s)
    text = headers.get("Retry-After", "").strip()  # also of characters that `float` does not take for blanks
    if not text:
        return None
    if _SECONDS.fullmatch(text):
        return min(float(text), cap_s)
    at = _http_date(text)
    return None if at is None else min(max(at - wall_s, 0.0), cap_s)


def back_off(failures: int, asked_s: float | None, budget: RetryBudget, uniform: Callable[[float, float], float]) -> float:
    """Seconds to wait after the `failures`-th failure in a row (≥ 1).

    Full jitter (AWS Architecture Blog, "Exponential Backoff And Jitter"); a wait that the server asked for is kept and
    the jitter comes on top, so that those it turned away do not all return at once.
    """
    jitter = uniform(0.0, min(budget.cap_s, budget.base_s * 2.0 ** min(failures - 1, _MAX_EXPONENT)))
    return jitter if asked_s is None else asked_s + min(jitter, budget.base_s)


def _http_date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError, OSError):
        return None
