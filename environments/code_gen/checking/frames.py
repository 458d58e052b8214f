"""Messages between the checker and the process that runs the program: JSON with its length before it.

Invariant: whatever arrives is a JSON object of bounded size, or `Gone`.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Callable, Mapping
from typing import Any

MAX_MESSAGE = 256 << 20
"""Bytes of one message. Longer than any expected output; a program that prints more gives no answer."""

_TICK_S = 0.1
"""How often it is looked at whether the other side still lives: a grandchild may hold the pipe open after its end."""


class Gone(Exception):
    """The other side has ended, is out of time, or speaks no JSON."""


class Line:
    """A pair of pipe ends. Functions of `os` are kept here, because the program's guard takes them out of the module."""

    def __init__(self, source: int, sink: int) -> None:
        self._source, self._sink = source, sink
        self._read, self._write, self._select = os.read, os.write, select.select
        self._now = time.monotonic

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one message; raises `Gone` when nobody reads."""
        body = json.dumps(message).encode("ascii")
        rest = memoryview(len(body).to_bytes(8, "big") + body)
        try:
            while rest:
                rest = rest[self._write(self._sink, rest) :]
        except OSError as e:
            raise Gone(repr(e)) from e

    def receive(self, deadline: float | None = None, alive: Callable[[], bool] | None = None) -> dict[str, Any]:
        """The next message; `deadline` is a time of `time.monotonic`. Raises `Gone`."""
        size = int.from_bytes(self._exactly(8, deadline, alive), "big")
        if size > MAX_MESSAGE:
            raise Gone(f"a message of {size} bytes")
        try:
            message = json.loads(self._exactly(size, deadline, alive))
        except (ValueError, RecursionError) as e:
            raise Gone(repr(e)) from e
        if not isinstance(message, dict):
            raise Gone("a message that is no object")
        return message

    def _exactly(self, size: int, deadline: float | None, alive: Callable[[], bool] | None) -> bytes:
        data = bytearray()
        while len(data) < size:
            if deadline is not None:
                self._wait(deadline, alive)
            part = self._read(self._source, min(size - len(data), 1 << 20))
            if not part:
                raise Gone("end of messages")
            data += part
        return bytes(data)

    def _wait(self, deadline: float, alive: Callable[[], bool] | None) -> None:
        while True:
            rest = deadline - self._now()
            if rest <= 0:
                raise Gone("out of time")
            living = alive is None or alive()  # asked before looking, so that last words are read
            if self._select([self._source], [], [], min(rest, _TICK_S) if living else 0)[0]:
                return
            if not living:
                raise Gone("it has ended")
