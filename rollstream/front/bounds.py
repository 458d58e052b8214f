"""What the HTTP front takes in at once, and how long it keeps what it holds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """Sizes in bytes, times in seconds.

    `calls` (seeds, tools, verifications) and `runs` (whole rollouts) are worked on at once; of each, `waiting` more wait for up
    to `wait_s` (a run for as long as one may take); further ones are refused. `buffered` bounds the bodies of all requests
    together. A session that nobody used for `idle_s` ends.
    """

    calls: int = 256
    runs: int = 256
    waiting: int = 4_096
    wait_s: float = 60.0
    body: int = 32 << 20
    buffered: int = 512 << 20
    body_s: float = 60.0
    sessions: int = 4_096
    session_bytes: int = 1 << 30
    idle_s: float = 3_600.0
