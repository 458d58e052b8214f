"""The pair of files of one run, and what makes each record count once in them.

Owns appending, truncating and the checkpoint; blocking, one thread at a time. Invariants:

- Between calls both files end with a whole line, and hold the lines of exactly the records below `offset(tp)`.
- After a kill at any system call (or a power cut), `open` restores that state as the last checkpoint recorded it; what
  was written since is cut off and comes again, because `offset(tp)` says so.
- A write that fails is undone before `SinkStoppedError` is raised.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from schemas import headers, jsontext
from schemas.errors import Outcome
from schemas.rows import ATTEMPT_INDEX, ROLLOUT_INDEX, TASK_INDEX
from services.runtime.record import Outgoing, TopicPartition
from services.sink.checkpoint import Checkpoint, read_checkpoint
from services.sink.disk import Disk, write_all
from services.sink.lines import UNCOUNTED, uncounted_line
from services.sink.paths import RunPaths
from services.sink.seen import Seen
from services.sink.step import RESULTS, rollout_key
from services.sink.stopped import SinkStoppedError, stopped


class Mode(StrEnum):
    """What to do with files that exist already.

    `CONTINUE` goes on from a checkpoint and refuses files that have none. `RESUME` takes such files too: their lines are
    kept, and the records they were made of, coming again, are not written a second time. `FRESH` clears them.
    """

    CONTINUE = "continue"
    RESUME = "resume"
    FRESH = "fresh"


class LineFiles:
    """`STEM.jsonl`, `STEM_failures.jsonl` and their checkpoint. A results line does not name its run: one run a pair."""

    def __init__(self, paths: RunPaths, run_id: str, mode: Mode = Mode.CONTINUE, disk: Disk | None = None) -> None:
        self._paths = paths
        self._run_id = run_id
        self._mode = mode
        self._disk = disk or Disk()
        self._seen = Seen()
        self._offsets: dict[TopicPartition, int] = {}
        self._fds: list[int] = []
        self._lengths = [0, 0]
        self._dirty = False
        self._torn = False

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """By partition, the offset of the first record that is not in the files."""
        return dict(self._offsets)

    @property
    def dirty(self) -> bool:
        """Whether something was appended since the last checkpoint."""
        return self._dirty

    def offset(self, partition: TopicPartition) -> int | None:
        return self._offsets.get(partition)

    def open(self) -> None:
        """Lock the files and bring them to the last checkpoint (see `Mode`).

        Raises `SinkStoppedError` when another process has them, they cannot be written, or they and the checkpoint do
        not belong together.
        """
        try:
            with self._explained("open", self._paths.results):
                self._acquire()
                if self._mode is Mode.FRESH:
                    self._clear()
                self._restore(read_checkpoint(self._paths.checkpoint))
        except SinkStoppedError:
            self.close()
            raise

    def append(self, partition: TopicPartition, outputs: Sequence[Outgoing], offset: int | None) -> None:
        """Append the lines of the records of `partition` up to `offset`; raises `SinkStoppedError` with nothing changed."""
        results, failures = bytearray(), bytearray()
        for out in outputs:
            kind, line = self._judged(out)
            (results if kind == RESULTS else failures).extend(line)
        try:
            self._write(bytes(results), bytes(failures))
        except BaseException:
            self._seen.take_back()
            raise
        self._seen.keep()
        self._lengths[0] += len(results)
        self._lengths[1] += len(failures)
        if offset is not None:
            self._offsets[partition] = offset
        self._dirty = True

    def checkpoint(self) -> None:
        """Make what was appended durable, then record it; raises `SinkStoppedError` (the former checkpoint stands)."""
        if not self._dirty:
            return
        for fd, path in zip(self._fds, self._both, strict=True):
            with self._explained("sync", path):
                self._disk.sync(fd)
        with self._explained("write", self._paths.checkpoint):
            Checkpoint(self._run_id, self._lengths[0], self._lengths[1], self._offsets).write(
                self._paths.checkpoint, self._disk
            )
        self._dirty = False

    def close(self) -> None:
        """Release the lock and the files, without a checkpoint."""
        for fd in self._fds:
            os.close(fd)
        self._fds = []

    @property
    def _both(self) -> tuple[Path, Path]:
        return self._paths.results, self._paths.failures

    def _judged(self, out: Outgoing) -> tuple[str, bytes]:
        """The line of an output and the file it belongs to; empty for an adopted line."""
        if self._seen.disown(out.value):
            return out.topic, b""
        if out.key is None:
            return out.topic, out.value + b"\n"
        attempt = int(headers.value(out.headers, headers.ATTEMPT) or 0)
        outcome = headers.value(out.headers, headers.OUTCOME) or b""
        if out.topic == RESULTS:
            found = self._seen.result(out.key, attempt)
        else:
            found = Outcome.FAILED if outcome.decode() in UNCOUNTED else self._seen.failure(out.key, attempt)
        if found in UNCOUNTED:
            line = uncounted_line(out.value, found, self._run_id, _MESSAGES[found])
            return "failures", b"" if self._seen.disown(line) else line + b"\n"
        return out.topic, out.value + b"\n"

    def _write(self, results: bytes, failures: bytes) -> None:
        if self._torn:
            self._cut()
        self._torn = True
        for i, data in enumerate((results, failures)):
            try:
                write_all(self._disk, self._fds[i], data)
            except OSError as e:
                self._cut()
                raise stopped(self._both[i], e) from e
        self._torn = False

    def _cut(self) -> None:
        """Cut both files to their known lengths."""
        for fd, length, path in zip(self._fds, self._lengths, self._both, strict=True):
            with self._explained("undo a torn write to", path):
                if os.fstat(fd).st_size != length:
                    self._disk.truncate(fd, length)
        self._torn = False

    def _acquire(self) -> None:
        self._paths.results.parent.mkdir(parents=True, exist_ok=True)
        self._fds = [self._disk.open(self._paths.results)]
        self._lock()
        self._fds.append(self._disk.open(self._paths.failures))
        for fd, path in zip(self._fds, self._both, strict=True):
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise SinkStoppedError(f"{path} is not a regular file")

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fds[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            if e.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise SinkStoppedError(
                f"another process is writing {self._paths.results}; only one may. For many sink replicas give a directory "
                "(a path that ends with /, or an object-store URL)"
            ) from e

    def _clear(self) -> None:
        """Empty the files and remove what was derived from them. The checkpoint goes first: without it nothing is trusted."""
        self._disk.remove(self._paths.checkpoint)
        self._disk.sync_directory(self._paths.results.parent)
        for fd in self._fds:
            self._disk.truncate(fd, 0)
        for path in self._paths.derived:
            self._disk.remove(path)

    def _restore(self, checkpoint: Checkpoint | None) -> None:
        if checkpoint is None:
            self._adopt()
        else:
            self._check(checkpoint)
            self._lengths = [checkpoint.results_bytes, checkpoint.failures_bytes]
            self._offsets = dict(checkpoint.offsets)
        self._cut()
        for i in (0, 1):
            for line in _lines(self._fds[i]):
                self._recall(i, line)
                if checkpoint is None:
                    self._seen.adopt(line)
        self._seen.keep()
        if checkpoint is None:
            self._dirty = True
            self.checkpoint()

    def _check(self, checkpoint: Checkpoint) -> None:
        if checkpoint.run_id != self._run_id:
            raise SinkStoppedError(
                f"{self._paths.results} holds run {checkpoint.run_id!r}, not {self._run_id!r}; "
                "name another output, or start it anew"
            )
        for fd, length, path in zip(self._fds, (checkpoint.results_bytes, checkpoint.failures_bytes), self._both, strict=True):
            size = os.fstat(fd).st_size
            if size < length:
                raise SinkStoppedError(
                    f"{path} has {size:,} bytes, but {self._paths.checkpoint.name} recorded {length:,}: it was changed since. "
                    "Put it back, or remove the checkpoint and resume"
                )

    def _adopt(self) -> None:
        """Take over files without a checkpoint: whole lines stay, a torn last one goes."""
        sizes = [os.fstat(fd).st_size for fd in self._fds]
        if any(sizes) and self._mode is Mode.CONTINUE:
            raise SinkStoppedError(
                f"{self._paths.results} (or its failures file) exists and has no {self._paths.checkpoint.name} that says how "
                "far it is; resume to keep its lines, or overwrite to start anew"
            )
        self._lengths = [_whole(fd, size) for fd, size in zip(self._fds, sizes, strict=True)]

    def _recall(self, which: int, line: bytes) -> None:
        """Book a line that is in the files; one that is not ours to understand is left alone."""
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
            value: Any = jsontext.loads_lenient(line)
            run_id = self._run_id if which == 0 else str(value.get("run_id", self._run_id))
            key = rollout_key(run_id, value[TASK_INDEX], value[ROLLOUT_INDEX])
            attempt = int(value.get(ATTEMPT_INDEX, 0))
            if which == 0:
                self._seen.result(key, attempt)
            elif value.get("outcome") not in UNCOUNTED:
                self._seen.failure(key, attempt)

    @contextlib.contextmanager
    def _explained(self, doing: str, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as e:
            raise stopped(e.filename or path, e, doing) from e


_MESSAGES = {
    Outcome.DUPLICATE: "this rollout is in the files already; the first record counts",
    Outcome.SUPERSEDED: "a later attempt of this rollout is in the files already; this one does not count",
}

_BLOCK = 1 << 20


def _lines(fd: int) -> Iterator[bytes]:
    """Whole lines of a file, without their ends."""
    with os.fdopen(os.dup(fd), "rb") as file:
        file.seek(0)
        for line in file:
            if line.endswith(b"\n"):
                yield line[:-1]


def _whole(fd: int, size: int) -> int:
    """Length of the file up to its last line end."""
    end = size
    while end > 0:
        start = max(0, end - _BLOCK)
        at = os.pread(fd, end - start, start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        end = start
    return 0
