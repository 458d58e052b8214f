"""Trace contexts: the one id that leads from a prompt to its scored record (W3C Trace Context, version 00).

Invariant: a rollout whose prompt brings no context always gets the same one, computed from its identity. So a second delivery
continues the same trace, no worker keeps anything in mind, and whoever knows a rollout's run and id can look it up.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import NamedTuple

from schemas.identity import RolloutRef

SAMPLED = 1
"""The flag of a context whose spans may be recorded (W3C Trace Context, 3.2.2.5.1)."""

_FORM = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_INVALID_VERSION = b"ff"


class TraceContext(NamedTuple):
    """A parsed `traceparent`: 128 bits of trace, 64 of the span that it names, 8 flags."""

    trace_id: int
    span_id: int
    flags: int

    @property
    def sampled(self) -> bool:
        """Whether its spans may be recorded."""
        return bool(self.flags & SAMPLED)


def started(ref: RolloutRef) -> bytes:
    """The `traceparent` of a rollout whose prompt has none. The span it names is the rollout's own (`span_of`)."""
    digest = _digest(ref.run_id.encode(), ref.rollout_id.encode())
    return f"00-{digest[:32]}-{digest[32:]}-01".encode()


def started_at(place: str) -> bytes:
    """The `traceparent` of a record that cannot be read and has none, by where it lies."""
    digest = _digest(b"", place.encode())
    return f"00-{digest[:32]}-{digest[32:]}-01".encode()


def span_of(run_id: bytes, rollout_id: bytes) -> int:
    """The id of the span that stands for a whole rollout, from first to last, whichever trace it is in."""
    return int(_digest(run_id, rollout_id)[32:], 16)


def parse(value: bytes | None) -> TraceContext | None:
    """The context that a header says; None when it says none, or not in the standard's form."""
    match = _FORM.fullmatch(value) if value is not None else None
    if match is None or match[1] == _INVALID_VERSION or (match[1] == b"00" and match.end() > match.end(4)):
        return None
    found = TraceContext(int(match[2], 16), int(match[3], 16), int(match[4], 16))
    return found if found.trace_id and found.span_id else None


def _digest(run_id: bytes, rollout_id: bytes) -> str:
    # `/` is in no id, so no two identities are spelled alike.
    return blake2b(run_id + b"/" + rollout_id, digest_size=24, person=b"rollstream-trace").hexdigest()
