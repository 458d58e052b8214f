"""The other end of `pool`: a process that runs functions as they arrive and hands back what came of each.

Run as a file, with the number of its socket: until the first frame has told it the parent's `sys.path`, it can import nothing
of this project. Invariants: results leave in the order of the jobs, each as soon as it is there, so whoever reads them knows
which job a dead process died of; and the process ends with its parent, whatever it is doing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from typing import Any, BinaryIO, cast

JOB = struct.Struct("<QI")
"""Before each job: its number and the size of what follows, a pickled `(function, arguments)`."""

RESULT = struct.Struct("<QIf")
"""Before each result: the job's number, the size of what follows (a pickled `(succeeded, value)`), seconds it took.
Number 0, with nothing behind it, says that the process has started."""

_BUFFER = 1 << 18
_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
_WATCH_S = 1.0
_MAX_TRACE = 4_000
"""Characters kept of the end of a traceback; the top is this file's."""


def main(fd: int) -> None:
    """Serve jobs until the socket closes."""
    _end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to act on
    with contextlib.suppress(OSError):
        os.dup2(2, 1)  # what functions print must not mix with what the parent prints
    connection = socket.socket(fileno=fd)
    with connection, cast("BinaryIO", connection.makefile("rb", _BUFFER)) as inbox, contextlib.suppress(ConnectionError):
        _, path = _read(inbox) or (0, b"")
        sys.path[:] = pickle.loads(path)  # noqa: S301 - from our parent
        connection.sendall(RESULT.pack(0, 0, 0.0))
        while (frame := _read(inbox)) is not None:
            connection.sendall(_answer(*frame))
    os._exit(0)  # threads that functions left behind, and their exit handlers, are not waited for


def _read(inbox: BinaryIO) -> tuple[int, bytes] | None:
    """The next frame; None when the parent is gone."""
    head = inbox.read(JOB.size)
    if len(head) < JOB.size:
        return None
    number, size = JOB.unpack(head)
    body = inbox.read(size)
    return (number, body) if len(body) == size else None


def _answer(number: int, job: bytes) -> bytes:
    started = time.perf_counter()
    body = _outcome(job)
    return RESULT.pack(number, len(body), time.perf_counter() - started) + body


def _outcome(job: bytes) -> bytes:
    try:
        function, arguments = pickle.loads(job)  # noqa: S301 - from our parent
        return _packed(True, function(*arguments))
    except Exception as e:  # noqa: BLE001 - everything belongs to the caller
        return _failed(e)
    except BaseException as e:  # noqa: BLE001 - there it would end the worker (`sys.exit`)
        return _failed(RuntimeError(f"the function raised {e!r}"))


def _packed(succeeded: bool, value: Any) -> bytes:
    try:
        return pickle.dumps((succeeded, value), protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as e:
        raise TypeError(f"a result of type {type(value).__name__} cannot be handed to another process: {e}") from e


def _failed(error: Exception) -> bytes:
    """The exception as it is, with the end of its traceback as a note; one that does not survive the trip, by its words."""
    error.add_note("".join(traceback.format_tb(error.__traceback__))[-_MAX_TRACE:])
    try:
        body = _packed(False, error)
        pickle.loads(body)  # noqa: S301 - our own bytes
    except Exception:  # noqa: BLE001 - exceptions of other packages may do anything here
        return _packed(False, RuntimeError(f"{type(error).__name__}: {error}"))
    if isinstance(error, StopIteration):  # no future can hold it
        return _packed(False, RuntimeError(f"the function raised {error!r}"))
    return body


def _end_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it is gone; elsewhere, look every second."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        return
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_WATCH_S)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
