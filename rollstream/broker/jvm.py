"""The JVM that is the broker: its command line, and the process.

Invariants: it never shares a terminal's process group with its starter, so Ctrl-C does not reach it; unless detached, it
ends with its starter, however that one ends (see `guard`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rollstream.broker import guard
from rollstream.broker.errors import BrokerError
from rollstream.broker.java import Java

_POLL_S = 0.01
_GUARD_START_S = 10.0  # takes 20 ms; the rest is for a machine that swaps
_KILL_WAIT_S = 10.0

_LOGGING = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSZ",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


@dataclass(frozen=True, slots=True)
class JavaCommand:
    """How to run one of Kafka's classes. `archive` holds classes linked and loaded ahead of time, which halves the start."""

    java: Java
    jars: Sequence[Path]
    heap: str
    archive: Path | None = None
    extra: Sequence[str] = ()

    def line(self, main_class: str, *arguments: str) -> list[str]:
        archive = [f"-XX:AOTCache={self.archive}"] if self.archive else []
        options = [*self.java.options(self.heap), *archive, *_LOGGING, *self.extra]
        return [str(self.java.launcher), *options, "-cp", ":".join(map(str, self.jars)), main_class, *arguments]


class Jvm:
    """A started JVM. `pid` is the JVM's own process id, also when a guard stands between."""

    def __init__(self, process: subprocess.Popen[bytes], pid: int) -> None:
        self._process = process
        self.pid = pid

    @property
    def exit_status(self) -> int | None:
        return self._process.poll()

    async def stop(self, grace_s: float) -> None:
        """Ask it to stop, wait up to `grace_s` seconds, then kill it."""
        self._signal(signal.SIGTERM)
        if not await self._ended(grace_s):
            await self.kill()
        self._let_go()

    async def kill(self) -> None:
        """End it at once, as a crash would."""
        self._signal(signal.SIGKILL)
        if not await self._ended(_KILL_WAIT_S):
            raise BrokerError(f"the broker's process {self.pid} does not end; look at it by hand")
        self._let_go()

    def _let_go(self) -> None:
        """Close the pipes to the guard, which takes that as the end of this process: only when the JVM has ended."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _signal(self, number: signal.Signals) -> None:
        # While the guard (its parent) is not reaped by us, the number cannot belong to another process.
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def _ended(self, timeout_s: float) -> bool:
        return await wait_for(lambda: self.exit_status is not None, timeout_s)


async def wait_for(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Poll until `condition` holds (True) or `timeout_s` seconds have passed (False)."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL_S)
    return True


def start_guarded(command: Sequence[str], *, cwd: Path, output: IO[bytes], lock: IO[str], grace_s: float) -> Jvm:
    """Start a JVM that ends when this process does. It inherits `lock`."""
    line = [sys.executable, "-I", "-S", guard.__file__, str(grace_s), *command]
    process = subprocess.Popen(  # noqa: S603  our own script and the packaged Java, no shell
        line,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=output,
        cwd=cwd,
        start_new_session=True,
        pass_fds=(lock.fileno(),),
    )
    return Jvm(process, _reported_pid(process))


def start_detached(command: Sequence[str], *, cwd: Path, output: IO[bytes], lock: IO[str]) -> Jvm:
    """Start a JVM that outlives this process. It inherits `lock`."""
    process = subprocess.Popen(  # noqa: S603
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        cwd=cwd,
        start_new_session=True,
        pass_fds=(lock.fileno(),),
    )
    return Jvm(process, process.pid)


def _reported_pid(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], _GUARD_START_S)
    text = process.stdout.readline().strip() if ready else b""
    if not text:
        process.kill()
        process.wait()
        raise BrokerError("the broker's process could not be started; its log says why")
    return int(text)
