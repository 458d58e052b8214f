"""Turns of tests when several processes run them: most side by side, one marked `alone` with the machine to itself.

Owns two files in a folder that the processes share. Invariants: while a test that is alone runs, no other does; whoever wants
to be alone waits for the tests under way only, since nobody starts another before it; a process that ends, however it
ends, holds nothing (the kernel lets go of its locks).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Turns:
    """`with turns.beside():` and `with turns.alone():` around a test; both wait without a deadline of their own."""

    folder: Path

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        """While others run, none of them alone."""
        with contextlib.ExitStack() as held:
            with self._locked("gate", fcntl.LOCK_EX):
                held.enter_context(self._locked("room", fcntl.LOCK_SH))
            yield

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """While nobody else runs."""
        with self._locked("gate", fcntl.LOCK_EX), self._locked("room", fcntl.LOCK_EX):
            yield

    @contextlib.contextmanager
    def _locked(self, name: str, kind: int) -> Iterator[None]:
        file = os.open(self.folder / name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, kind)
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # closing would not do: a forked child may have the file open as well
            os.close(file)
