"""A real Apache Kafka of one node, from packages, on loopback ports, with data that outlive the process.

Owns the life of that broker. Invariants: one process at most serves a data directory; a start either ends with a broker
that clients can use or raises with the end of the broker's log; what a client was told is written survives `kill -9`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Literal

from rollstream.broker import archive as archives
from rollstream.broker import jars, jvm, state
from rollstream.broker.errors import BrokerError
from rollstream.broker.java import find_java
from rollstream.broker.jvm import JavaCommand, Jvm
from rollstream.broker.paths import Layout, default_data_dir
from rollstream.broker.properties import HOST, Ports, server_properties
from rollstream.broker.readiness import wait_ready
from rollstream.broker.state import BrokerInfo
from services.runtime.connection import Connection

START_TIMEOUT_S = 60.0
"""A warm start takes 1 s, recovery after a crash a few; a machine with every core busy can take ten times that."""

GRACE_S = 15.0
"""A clean stop takes 0.2 s; past this the broker is killed, which costs a recovery at the next start."""

_HEAP = "512m"
_TRIES = 3
_PORT_TAKEN = "Address already in use"  # Java's words, in the log
_ORPHAN_GRACE_S = 3.0
"""For a clean end when this process is gone: nobody waits for it, and killing it loses nothing."""

_TRAINING_END_S = 5.0
_TAIL_LINES = 25
_TAIL_BYTES = 64 * 1024
_LOG_LIMIT = 4 << 20  # bytes of output kept before it is moved aside; at warning level that is months


class LocalBroker:
    """`async with LocalBroker(path) as connection: ...`, or `start` and `stop`; it may be started again after a stop.

    `data_dir` defaults to the user's own; `archive` None switches the ahead-of-time archive off. `detached` brokers
    outlive this process. A download (first start only) is told to `report`.
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        detached: bool = False,
        archive: Literal["background"] | None = "background",
        jvm_options: Sequence[str] = (),
        start_timeout_s: float = START_TIMEOUT_S,
        grace_s: float = GRACE_S,
        report: jars.Report = jars.to_stderr,
    ) -> None:
        self.layout = Layout((data_dir or default_data_dir()).absolute())
        self._detached = detached
        self._archive = archive
        self._jvm_options = tuple(jvm_options)
        self._start_timeout_s = start_timeout_s
        self._grace_s = grace_s
        self._report = report
        self._lock: IO[str] | None = None
        self._jvm: Jvm | None = None
        self._info: BrokerInfo | None = None
        self._log_start = 0
        self._training: subprocess.Popen[bytes] | None = None

    @property
    def info(self) -> BrokerInfo:
        """Where and as which process it runs. Raises `BrokerError` when it was not started."""
        if self._info is None:
            raise BrokerError("the local broker is not running: start it first")
        return self._info

    @property
    def connection(self) -> Connection:
        return self.info.connection

    @property
    def running(self) -> bool:
        """Whether its process lives; False also after a crash."""
        return self._jvm is not None and self._jvm.exit_status is None

    async def start(self) -> Connection:
        """Start it and wait until clients can use it.

        Raises `BrokerBusyError` when another process serves this directory, `BrokerError` when it does not start.
        """
        if self._lock is not None:
            raise BrokerError(f"the local broker in {self.layout.root} was started already")
        self._lock = await state.take_lock(self.layout)
        try:
            self._info = await self._start_with_remedies(self._lock)
        except BaseException:
            await self._abandon()
            raise
        return self._info.connection

    async def stop(self) -> None:
        """Stop it cleanly and let the directory go. Does nothing when it is not running."""
        await self._end_training()
        if self._jvm is not None:
            await self._jvm.stop(self._grace_s)
        self._release()

    async def kill(self) -> None:
        """End its process with SIGKILL, as a crash would; `start` then recovers."""
        await self._end_training()
        if self._jvm is not None:
            await self._jvm.kill()
        self._release()

    def leave_running(self) -> BrokerInfo:
        """Forget a detached broker without stopping it, and say how to find it."""
        info = self.info
        self._jvm = None
        if self._lock is not None:
            self._lock.close()  # the JVM has it open too, and keeps it
            self._lock = None
        return info

    async def __aenter__(self) -> Connection:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _start_with_remedies(self, lock: IO[str]) -> BrokerInfo:
        """Start; where the failure has a cause that can be removed (a taken port, a damaged cache), remove it and try again."""
        suspect: Path | None = None
        for attempt in range(1, _TRIES + 1):
            command = await asyncio.to_thread(self._command, use_archive=suspect is None)
            ports = self._ports(fresh=attempt > 1)
            try:
                info = await self._start_once(command, ports, lock)
            except BrokerError as error:
                if attempt == _TRIES or not await self._remedied(command, error):
                    raise
                if _PORT_TAKEN not in str(error):
                    suspect = suspect or command.archive
            else:
                if suspect is not None and command.archive is None:
                    suspect.unlink(missing_ok=True)  # it starts without: the archive it was
                self._train_if_missing(command)
                return info
        raise AssertionError("unreachable: the last try returns or raises")

    async def _remedied(self, command: JavaCommand, error: BrokerError) -> bool:
        """Whether another try, with other ports and without the archive, has a chance."""
        if _PORT_TAKEN in str(error) or command.archive is not None:
            return True
        return bool(await asyncio.to_thread(jars.discard_damaged))

    def _command(self, *, use_archive: bool) -> JavaCommand:
        java = find_java()
        path = jars.kafka_jars(self._report)
        archive = archives.archive_path(java, path, _HEAP) if use_archive and self._archive else None
        return JavaCommand(java, path, _HEAP, archive if archive and archive.is_file() else None, self._jvm_options)

    def _ports(self, *, fresh: bool) -> Ports:
        saved = None if fresh else state.saved_ports(self.layout)
        if saved is not None and _free(saved.broker) and _free(saved.controller):
            return saved
        return _free_ports()

    async def _start_once(self, command: JavaCommand, ports: Ports, lock: IO[str]) -> BrokerInfo:
        _check_path(self.layout)
        self.layout.properties.write_text(server_properties(self.layout.log_dir, ports))
        with _open_log(self.layout.output) as output:
            self._log_start = output.tell()
            if not self.layout.formatted:
                await self._format(command, output, lock)
            line = command.line("kafka.Kafka", str(self.layout.properties))
            self._jvm = self._spawn(line, output, lock)
        await self._wait_ready(self._jvm, ports)
        state.save_ports(self.layout, ports)
        return state.note(self.layout, self._jvm.pid, ports, detached=self._detached)

    def _spawn(self, line: Sequence[str], output: IO[bytes], lock: IO[str]) -> Jvm:
        root = self.layout.root
        if self._detached:
            return jvm.start_detached(line, cwd=root, output=output, lock=lock)
        return jvm.start_guarded(line, cwd=root, output=output, lock=lock, grace_s=_ORPHAN_GRACE_S)

    async def _format(self, command: JavaCommand, output: IO[bytes], lock: IO[str]) -> None:
        """Give the directory its cluster identity. Once; a second call on a half-formatted directory completes it."""
        arguments = ("format", "--ignore-formatted", "-t", _cluster_id(), "-c", str(self.layout.properties))
        line = replace(command, extra=()).line("kafka.tools.StorageTool", *arguments)
        process = jvm.start_guarded(line, cwd=self.layout.root, output=output, lock=lock, grace_s=_ORPHAN_GRACE_S)
        try:
            done = await jvm.wait_for(lambda: process.exit_status is not None, self._start_timeout_s)
        finally:
            await process.kill()
        if not done or process.exit_status != 0:
            raise BrokerError(f"the local broker's directory {self.layout.root} could not be formatted\n{self._tail()}")

    async def _wait_ready(self, process: Jvm, ports: Ports) -> None:
        def check_alive() -> None:
            if process.exit_status is not None:
                raise BrokerError("the local broker ended while it started")

        try:
            await wait_ready(ports, check_alive, timeout_s=self._start_timeout_s)
        except BrokerError as error:
            await process.kill()
            raise BrokerError(f"{error} (log: {self.layout.output})\n{self._tail()}") from error

    def _train_if_missing(self, command: JavaCommand) -> None:
        if self._archive is None or command.archive is not None:
            return
        archive = archives.archive_path(command.java, command.jars, command.heap)
        if archive is not None:
            process = archives.train_in_background(archive, outlive=self._detached)
            self._training = None if self._detached else process

    async def _end_training(self) -> None:
        process, self._training = self._training, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()  # it takes this as the end, and cleans up
        if not await jvm.wait_for(lambda: process.poll() is not None, _TRAINING_END_S):
            process.kill()
            process.wait()

    def _tail(self) -> str:
        with contextlib.suppress(OSError), self.layout.output.open("rb") as log:
            log.seek(max(self._log_start, self.layout.output.stat().st_size - _TAIL_BYTES))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-_TAIL_LINES:])
        return "(it wrote no log)"

    async def _abandon(self) -> None:
        if self._jvm is not None:
            await self._jvm.kill()
        self._release()

    def _release(self) -> None:
        state.forget(self.layout)
        self._jvm = self._info = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _cluster_id() -> str:
    """A new identity as Kafka writes it: 16 bytes in URL-safe base64, not beginning with a dash (it is an argument)."""
    while (identity := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return identity


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java does: a closing connection does not matter
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _free_ports() -> Ports:
    """Two ports that are free now. Someone may take them before the JVM does; the start is then tried with others."""
    with socket.socket() as one, socket.socket() as two:
        one.bind((HOST, 0))
        two.bind((HOST, 0))
        return Ports(one.getsockname()[1], two.getsockname()[1])


def _check_path(layout: Layout) -> None:
    if "," in str(layout.root):
        raise BrokerError(
            f"the broker's data directory {layout.root} has a comma in its name, which Kafka reads as two directories"
        )


def _open_log(path: Path) -> IO[bytes]:
    if path.is_file() and path.stat().st_size > _LOG_LIMIT:
        path.replace(path.with_suffix(".log.1"))
    return path.open("ab")
