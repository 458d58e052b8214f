"""Record headers: what a reader may want to know without opening the value.

Invariant: every record after admission carries its run and its rollout, so a reader can pick one run out of a shared
topic for the price of comparing bytes. `traceparent` (W3C Trace Context) is passed on as it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from schemas.identity import RolloutRef

RUN = "rs-run"
ROLLOUT = "rs-rollout"
ATTEMPT = "rs-attempt"
ENVIRONMENT = "rs-environment"
SOURCE = "rs-source"
OUTCOME = "rs-outcome"
CLAIM = "rs-claim"
TRACE = "traceparent"

Headers = Sequence[tuple[str, bytes]]


def of(ref: RolloutRef, *more: tuple[str, bytes]) -> list[tuple[str, bytes]]:
    """Headers that identify a rollout, followed by `more`."""
    return [(RUN, ref.run_id.encode()), (ROLLOUT, ref.rollout_id.encode()), *more]


def value(headers: Iterable[tuple[str, bytes]], name: str) -> bytes | None:
    """Value of the first header called `name`."""
    for key, found in headers:
        if key == name:
            return found
    return None
