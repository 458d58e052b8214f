"""Signals that reach a command while it still imports, seconds on a busy machine: kept until its event loop listens.

Invariant: the first signal to stop is never lost, and a second one ends the process at once. Whoever listens on an event loop
later takes the place of these handlers. Imports next to nothing.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM)
"""The signals with which people and schedulers stop a process."""


class EarlySignals:
    """`with EarlySignals.kept() as early:` around imports and run; `early.came` once somebody has asked to stop."""

    def __init__(self) -> None:
        self.came = False

    @classmethod
    @contextlib.contextmanager
    def kept(cls) -> Iterator[EarlySignals]:
        """Listen, and put the former handlers back at the end. Outside the main thread, which alone gets signals: nothing."""
        early = cls()
        if threading.current_thread() is not threading.main_thread():
            yield early
            return
        former = {number: signal.signal(number, early._note) for number in STOPPING}
        try:
            yield early
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.came = True
        signal.signal(number, signal.SIG_DFL)
