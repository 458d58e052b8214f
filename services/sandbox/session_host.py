"""The program of a live session: keeps the line to the worker, and runs the environment's driver in a child process.

It runs inside the sandbox (no package of the project). A driver is Python source that defines `execute(code) -> dict`, where
the dict is JSON; it finds the rollout's id in the global `ROLLOUT`. Frames on every line: 10 digits, a blank, that many bytes
of JSON, a line end.

Invariant: one frame reaches the worker for one frame from it, made here. The child, where model-written code runs, has no
descriptor of that line and cannot read this process's memory; what it writes of its own accord carries no valid mark and is
dropped. A child that ends, or writes what is no frame, ends the session.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys

CHANNEL = 3
HEAD = 11
MAX_FRAME = 16 << 20
"""Longer than any reply that a driver has reason to give; a longer one ends the session."""

PR_SET_DUMPABLE = 4


class Line:
    """One line of frames; two descriptors, which may be the same."""

    def __init__(self, source: int, sink: int) -> None:
        self.source, self.sink = source, sink

    def send(self, value: object) -> None:
        body = json.dumps(value).encode("ascii")
        left = memoryview(b"%010d %s\n" % (len(body), body))
        while left:
            left = left[os.write(self.sink, left) :]

    def receive(self) -> dict[str, object]:
        """The next frame; `EOFError` at the end of the line, `ValueError` for what is no frame."""
        head = self._exactly(HEAD)
        if not head[:10].isdigit() or int(head[:10]) > MAX_FRAME:
            raise ValueError("no frame")
        value = json.loads(self._exactly(int(head[:10]) + 1))
        if not isinstance(value, dict):
            raise ValueError("no frame")  # noqa: TRY004 - a wrong frame like any other
        return value

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = os.read(self.source, min(size - len(data), 1 << 20))
            if not part:
                raise EOFError
            data += part
        return bytes(data)


def hide() -> None:
    """Close this process's memory and descriptors to other processes of the user."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def drive(line: Line) -> None:
    """The child: serve the driver until the host is gone."""
    own = os.getpid()
    with open("driver.py", encoding="utf-8") as file:  # noqa: PTH123 - pathlib's import would delay every session
        driver: dict[str, object] = {"__name__": "driver", "ROLLOUT": sys.argv[1]}
        exec(compile(file.read(), "driver.py", "exec"), driver)  # noqa: S102 - the environment's own program
    execute = driver["execute"]
    while True:
        asked = line.receive()
        reply = execute(asked["code"])  # type: ignore[operator]  # a driver defines a function
        if os.getpid() != own:  # code that forked came back twice
            os._exit(0)
        line.send({"mark": asked["mark"], "reply": reply})


def keep(worker: Line, child: Line, pid: int) -> None:
    """The host: pass calls on, and the marked replies back."""
    while True:
        call = worker.receive()
        mark = os.urandom(16).hex()
        try:
            child.send({"mark": mark, "code": call["code"]})
            reply = child.receive()
            while reply.get("mark") != mark:
                reply = child.receive()
            found = {"reply": reply["reply"]}
        except (EOFError, OSError):
            found = {"ended": ending(os.waitpid(pid, 0)[1])}
        except (ValueError, KeyError, RecursionError):
            found = {"ended": "it wrote on the line of its session"}
        worker.send({"number": call["number"], **found})
        if "ended" in found:
            return


def ending(status: int) -> str:
    """How the child ended, in words."""
    code = os.waitstatus_to_exitcode(status)
    return f"it exited with status {code}" if code >= 0 else f"signal {-code} ended it"


def main() -> None:
    down, up = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        for fd in (CHANNEL, down[1], up[0]):
            os.close(fd)
        try:
            drive(Line(down[0], up[1]))
        except EOFError:
            os._exit(0)
    for fd in (down[0], up[1]):
        os.close(fd)
    hide()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    with contextlib.suppress(EOFError):
        keep(Line(CHANNEL, CHANNEL), Line(up[0], down[1]), pid)
    os._exit(0)


if __name__ == "__main__":
    main()
