"""Record headers: what a reader may want to know without opening the value.

Invariant: every record after admission carries its run and its rollout, so a reader can pick one run out of a shared
topic for the price of comparing bytes. `traceparent` (W3C Trace Context) is passed on as it came, and begun
at admission where a prompt brings none (`schemas.trace`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from schemas.identity import RolloutRef

RUN = "rs-run"
ROLLOUT = "rs-rollout"
ATTEMPT = "rs-attempt"
ENVIRONMENT = "rs-environment"
SOURCE = "rs-source"
OUTCOME = "rs-outcome"
CLAIM = "rs-claim"
SCORE = "rs-score"
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


class Score(NamedTuple):
    """What a scored line says about itself, so that whoever passes it on need not parse it.

    `rollout` is `TASK-ROLLOUT` in decimal, as in `RolloutRef.key`; `reward` as Python spells the float.
    """

    rollout: bytes
    attempt: bytes
    reward: bytes


def score_of(ref: RolloutRef, reward: float) -> tuple[str, bytes]:
    """The header of a scored line, written by the verifier worker beside the line."""
    return SCORE, f"{ref.task_index}-{ref.rollout_index} {ref.attempt} {reward!r}".encode()


def read_score(headers: Iterable[tuple[str, bytes]]) -> Score | None:
    """The header of `score_of`; None when there is none or it is not one."""
    parts = (value(headers, SCORE) or b"").split(b" ")
    if len(parts) != len(Score._fields):
        return None
    found = Score(*parts)
    task, _, rollout = found.rollout.partition(b"-")
    numbers = task.isdigit() and rollout.isdigit() and found.attempt.isdigit()
    return found if numbers and _is_finite(found.reward) else None


def _is_finite(text: bytes) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
