"""One process of the pool, as the event loop sees it: what it was given, and what came back.

Owns the process, its socket and the jobs that it holds. Invariant: jobs are answered in the order they were given, so the first
of them is the one being worked on, and the one to blame when the process dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import signal
import socket
import subprocess
import sys
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from services.runtime import pool_child
from services.runtime.pool_child import JOB, RESULT


@dataclass(slots=True, eq=False)
class Job:
    """One call on its way. `body` is the pickled call; `estimate_s` what its like took lately; times are the loop's."""

    number: int
    kind: str
    body: bytes
    future: asyncio.Future[Any]
    timeout_s: float
    queued: float
    estimate_s: float = 0.0


class Owner(Protocol):
    """Who is told what a process does."""

    def answered(self, job: Job, seconds: float, body: bytes) -> None: ...
    def died(self, process: PoolProcess) -> None: ...


@dataclass(slots=True, eq=False)
class PoolProcess(asyncio.Protocol):
    """A running child. `since`: when it turned to the first of its jobs (or was started); `load_s`: estimate of all of them."""

    owner: Owner
    since: float
    jobs: deque[Job] = field(default_factory=deque)
    load_s: float = 0.0
    ready: bool = False
    gone: bool = False
    _outbox: list[bytes] = field(default_factory=list)
    _inbox: bytearray = field(default_factory=bytearray)
    _transport: asyncio.Transport | None = None
    _connecting: asyncio.Task[Any] | None = None
    _child: subprocess.Popen[bytes] = field(init=False)

    def start(self) -> None:
        """Start the child; it takes jobs at once and works on them when it is up. Raises `OSError`."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                # -P: the folder of the child's file is no place to import from. Its own session: a signal to the terminal's
                # group must not end a verification that its worker still waits for.
                self._child = subprocess.Popen(  # noqa: S603 - our interpreter, our file
                    [sys.executable, "-P", pool_child.__file__, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                raise
        path = pickle.dumps(sys.path)
        self._outbox.append(JOB.pack(0, len(path)) + path)
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        self._connecting = loop.create_task(loop.create_unix_connection(lambda: self, sock=ours))

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._child.pid

    def give(self, job: Job) -> None:
        """Put a job behind those that it has; `flush` sends them."""
        self.jobs.append(job)
        self.load_s += job.estimate_s
        self._outbox += (JOB.pack(job.number, len(job.body)), job.body)

    def flush(self) -> None:
        """Send what was given."""
        if self._outbox and self._transport is not None:
            self._transport.write(b"".join(self._outbox))
            self._outbox.clear()

    def take_back(self, keep: int) -> list[Job]:
        """The jobs behind the first `keep`; should the child have them already, what it answers to them is ignored."""
        rest = list(self.jobs)[keep:]
        for _ in rest:
            self.jobs.pop()
        return rest

    def kill(self) -> None:
        """End the child at once; `wait` for it to be gone."""
        self.gone = True
        with contextlib.suppress(OSError):
            self._child.kill()
        if self._transport is not None:
            self._transport.abort()

    async def wait(self) -> str:
        """How the child ended, in words, once it has."""
        code = await asyncio.to_thread(self._child.wait)
        if self._connecting is not None:
            await asyncio.wait([self._connecting])
            if self._transport is not None:
                self._transport.abort()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are, without saying so
        self.flush()

    def data_received(self, data: bytes) -> None:
        self._inbox += data
        start = 0
        while len(self._inbox) - start >= RESULT.size:
            number, size, seconds = RESULT.unpack_from(self._inbox, start)
            end = start + RESULT.size + size
            if len(self._inbox) < end:
                break
            self._frame(number, seconds, bytes(memoryview(self._inbox)[start + RESULT.size : end]))
            start = end
        del self._inbox[:start]

    def _frame(self, number: int, seconds: float, body: bytes) -> None:
        self.since = asyncio.get_running_loop().time()
        if number == 0:
            self.ready = True
        elif self.jobs and self.jobs[0].number == number:
            job = self.jobs.popleft()
            self.load_s = max(0.0, self.load_s - job.estimate_s) if self.jobs else 0.0
            self.owner.answered(job, seconds, body)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if not self.gone:
            self.kill()
            self.owner.died(self)
