"""The files that a re-verification writes (platform.md C2, C4, A6).

Invariants: existing output is touched only when somebody said how; both files end with a whole line after every write; a
rollout has one line in the results, however often the command is repeated; and where the sink keeps a checkpoint of the
results, it is moved along, so that a later resume does not cut off what was appended.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from rollstream.reverify.guard import ReverifyError
from rollstream.runfiles.readers import JsonLines, Key, TornLine, done_keys
from services.sink.checkpoint import Checkpoint, read_checkpoint
from services.sink.disk import Disk, write_all
from services.sink.paths import RunPaths
from services.sink.stopped import stopped


class Existing(StrEnum):
    """What becomes of output that is there already."""

    REFUSE = "refuse"
    OVERWRITE = "overwrite"
    RESUME = "resume"
    APPEND = "append"


class Output:
    """Results and failures files, open for appending and locked. `done` are the rollouts that have a result in them."""

    def __init__(self, paths: RunPaths, existing: Existing) -> None:
        self.paths = paths
        self.done: frozenset[Key] = frozenset()
        self.torn: tuple[TornLine, ...] = ()
        self._existing = existing
        self._disk = Disk()
        self._fds: list[int] = []
        self._checkpoint: Checkpoint | None = None

    def open(self) -> None:
        """Open and lock; raises `ReverifyError` when that is not wanted, `SinkStoppedError` when it cannot be done."""
        self._check()
        try:
            self.paths.results.parent.mkdir(parents=True, exist_ok=True)
            self._fds = [self._disk.open(path) for path in self._both]
            self._lock()
            self._keep() if self._existing in (Existing.RESUME, Existing.APPEND) else self._clear()
        except OSError as e:
            raise stopped(self.paths.results, e) from e

    def write(self, results: Iterable[bytes] = (), failures: Iterable[bytes] = ()) -> None:
        """Append lines (without their line ends); raises `SinkStoppedError`."""
        for fd, path, lines in zip(self._fds, self._both, (results, failures), strict=True):
            data = b"".join([line + b"\n" for line in lines])
            if not data:
                continue
            size = os.fstat(fd).st_size
            try:
                write_all(self._disk, fd, data)
            except OSError as e:
                with suppress(OSError):
                    self._disk.truncate(fd, size)
                raise stopped(path, e) from e

    def close(self) -> None:
        """Make durable what was written, and let go."""
        for fd in self._fds:
            self._disk.sync(fd)
        if self._checkpoint is not None:
            sizes = [os.fstat(fd).st_size for fd in self._fds]
            moved = replace(self._checkpoint, results_bytes=sizes[0], failures_bytes=sizes[1])
            moved.write(self.paths.checkpoint, self._disk)
        for fd in self._fds:
            os.close(fd)
        self._fds = []

    @property
    def _both(self) -> tuple[Path, Path]:
        return self.paths.results, self.paths.failures

    def _check(self) -> None:
        there = self.paths.results.exists()
        if there and self._existing is Existing.REFUSE:
            raise ReverifyError(f"{self.paths.results} exists: --resume goes on with it, --overwrite starts it anew")
        if not there and self._existing is Existing.APPEND:
            raise ReverifyError(f"{self.paths.results} does not exist: there is nothing to append to")

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fds[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise ReverifyError(f"another process is writing {self.paths.results}") from e

    def _clear(self) -> None:
        for path in (self.paths.checkpoint, self.paths.run, *self.paths.derived):
            self._disk.remove(path)
        for fd in self._fds:
            self._disk.truncate(fd, 0)

    def _keep(self) -> None:
        self._checkpoint = read_checkpoint(self.paths.checkpoint)
        c = self._checkpoint
        if c is not None and [c.results_bytes, c.failures_bytes] != [os.fstat(fd).st_size for fd in self._fds]:
            raise ReverifyError(
                f"{self.paths.results} is not as {self.paths.checkpoint.name} recorded it: the run that writes it was stopped. "
                "Resume that run first"
            )
        self.torn = tuple(t for fd, path in zip(self._fds, self._both, strict=True) if (t := self._whole(fd, path)))
        self.done = frozenset(done_keys(self.paths.results))

    def _whole(self, fd: int, path: Path) -> TornLine | None:
        """Let a file end with a whole line: a torn one is cut off, one that lacks only its end gets it."""
        lines = JsonLines(path)
        for _ in lines.numbered():
            pass
        size = os.fstat(fd).st_size
        if lines.torn is not None:
            self._disk.truncate(fd, size - lines.torn.size)
        elif size and os.pread(fd, 1, size - 1) != b"\n":
            write_all(self._disk, fd, b"\n")
        return lines.torn
