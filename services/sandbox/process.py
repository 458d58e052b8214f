"""A box that is a process of this machine: started, limited and ended.

Invariant: a started process has been waited for when its `end` returns, and what it borrowed (a user id, a directory, a control
group) is given back then, not earlier.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from schemas.errors import InfrastructureError
from services.sandbox import cgroups
from services.sandbox.backend import Launch
from services.sandbox.box import STOP_S, Box, finished
from services.sandbox.order import Order

LAST_WORDS = 2_000
NO_GROUPS = cgroups.Hierarchy()


@dataclass(frozen=True, slots=True)
class Start:
    """How a box is started: its command and environment, descriptors to pass (closed here once it has them).

    `sweep`: kill what is left below it, for a supervisor that is not the first process of a namespace. `gone` is called once
    and told whether the supervisor ended in order, which it does when nothing is left below it.
    """

    argv: Sequence[str]
    order: Order
    pass_fds: Collection[int] = ()
    groups: cgroups.Hierarchy = NO_GROUPS
    supervisor: Callable[[int], int] = lambda pid: pid
    sweep: Callable[[psutil.Process], None] | None = None
    gone: Callable[[bool], None] = lambda _: None


@dataclass(slots=True)
class ProcessLife:
    """See `services.sandbox.box.Life`."""

    start: Start
    process: subprocess.Popen[bytes]
    group: cgroups.Group | None = field(default=None)
    _ended: bool = False
    _grouping: threading.Lock = field(default_factory=threading.Lock)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def join_group(self) -> None:
        """Give the supervisor, and all that will come of it, a control group of its own; nothing when it is being ended.

        Runs in a thread, which goes on when the one that waits for it is cancelled.
        """
        with self._grouping:
            if not self._ended:
                self.group = cgroups.make(self.start.groups, self.start.supervisor(self.process.pid))

    def admit(self, launch: Launch) -> None:
        if self.group:
            self.group.limit(launch.limits.memory, launch.limits.processes)

    async def out_of_memory(self) -> bool:
        return self.group is not None and self.group.out_of_memory

    async def last_words(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self.process.wait, 1.0)
        assert self.process.stderr
        os.set_blocking(self.process.stderr.fileno(), False)
        return (self.process.stderr.read() or b"")[-LAST_WORDS:].decode(errors="replace").strip()

    async def end(self) -> None:
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        with self._grouping:
            self._ended = True
        try:
            self._wait()
        finally:
            if self.process.stderr:
                self.process.stderr.close()
            if self.group:
                self.group.remove()
            self.start.gone(self.process.returncode == 0)

    def _wait(self) -> None:
        if self.start.sweep is None:
            self._kill_namespace()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._by_force()

    def _kill_namespace(self) -> None:
        """Kill the first process of the namespace, with which all others die.

        Killing its parent alone would not do: it has another user, and the parent no right to signal it. Its number is looked
        up while the parent lives, which keeps it from being given anew.
        """
        if self.alive:
            with suppress(OSError):
                os.kill(self.start.supervisor(self.process.pid), signal.SIGKILL)

    def _by_force(self) -> None:
        """Its line is closed and it still lives: stopped by its program, perhaps."""
        with suppress(psutil.Error):
            if self.start.sweep:
                self.start.sweep(psutil.Process(self.process.pid))
        self.process.kill()
        self.process.wait()


def sweep_below(supervisor: psutil.Process) -> None:
    """Kill what descends from it, stopped first so that it starts no more."""
    for number in (signal.SIGSTOP, signal.SIGSTOP, signal.SIGKILL):
        for child in supervisor.children(recursive=True):
            with suppress(psutil.Error):
                child.send_signal(number)


def sweep_user(user: int) -> None:
    """Kill every process of a user id that one box had for itself."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.uids().real == user:
                process.kill()


def _started(start: Start, line: int) -> subprocess.Popen[bytes]:
    """By vfork, so the event loop waits only until the program is loaded."""
    return subprocess.Popen(  # noqa: S603
        list(start.argv),
        stdin=line,
        stdout=line,
        stderr=subprocess.PIPE,
        env=dict(start.order.environment),
        pass_fds=start.pass_fds,
        cwd="/",
        start_new_session=True,
    )


async def open_box(start: Start) -> Box:
    """A box that is ready; raises `InfrastructureError` when it does not come up.

    What `start` borrowed is given back when it raises, also by a cancellation, at any point.
    """
    ours, process = _connected(start)
    life = ProcessLife(start, process)
    try:
        reader, writer = await asyncio.open_connection(sock=ours)
    except BaseException:
        ours.close()
        await finished(asyncio.create_task(life.end()))
        raise
    box = await Box(life, reader, writer, start.order).ready()
    try:
        if start.groups.usable:
            await asyncio.to_thread(life.join_group)
    except BaseException:
        await box.close()
        raise
    return box


def _connected(start: Start) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Our end of the line, and the process that has the other."""
    try:
        ours, theirs = socket.socketpair()
        try:
            return ours, _started(start, theirs.fileno())
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
    except OSError as error:
        start.gone(True)
        raise InfrastructureError(f"the sandbox could not start {start.argv[0]}: {error.strerror}") from error
    finally:
        for fd in start.pass_fds:
            os.close(fd)
