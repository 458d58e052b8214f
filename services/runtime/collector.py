"""The garbage collector of a worker process.

A worker keeps tens of thousands of small objects alive (rollouts in flight, their tasks, timers and sockets), nearly all
freed by reference counting. Python's defaults walk all of them again and again: with 16,000 calls in flight a full
collection held the event loop for up to 2.7 s; with these settings it was 0.7 s, and rare.
"""

from __future__ import annotations

import gc

YOUNG = 50_000
"""Allocations between collections of the youngest generation; the default is 700 to 2,000."""

MIDDLE, OLD = 20, 1_000
"""Collections of a generation before the next older one is looked at."""


def settle() -> None:
    """Leave what start-up has made out of collections, and make them rare. Call once, when the process is ready."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
