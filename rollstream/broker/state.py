"""Who runs the broker of a data directory: the lock that makes it one process at most, and the note that says which.

Invariants: the lock is an open file that the JVM inherits, so it is held exactly as long as a JVM (or a starter at work)
lives, also after `kill -9`; a note whose process is gone, or is another process with the same number, reads as none.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from rollstream.broker.errors import BrokerBusyError, BrokerError
from rollstream.broker.paths import Layout
from rollstream.broker.properties import Ports
from services.runtime.connection import Connection

_SAME_PROCESS_S = 2.0  # clocks of the kernel and of the note differ by rounding only


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A running local broker. `started_at` is in seconds since 1970; `detached` brokers outlive who started them."""

    pid: int
    process_started_at: float
    started_at: float
    ports: Ports
    detached: bool
    data_dir: Path

    @property
    def bootstrap_servers(self) -> str:
        return self.ports.bootstrap

    @property
    def connection(self) -> Connection:
        return Connection(self.ports.bootstrap)

    @property
    def log(self) -> Path:
        return Layout(self.data_dir).output


def note(layout: Layout, pid: int, ports: Ports, *, detached: bool) -> BrokerInfo:
    """Write down that process `pid` serves this directory."""
    info = BrokerInfo(pid, _process_start(pid) or 0.0, time.time(), ports, detached, layout.root)
    draft = layout.state.with_suffix(".part")
    draft.write_text(json.dumps(asdict(info), default=str))
    draft.replace(layout.state)
    return info


def read_note(layout: Layout) -> BrokerInfo | None:
    """The broker that runs in this directory now, or None."""
    try:
        fields = json.loads(layout.state.read_bytes())
        info = BrokerInfo(**{**fields, "ports": Ports(**fields["ports"]), "data_dir": layout.root})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    started = _process_start(info.pid)
    return info if started is not None and abs(started - info.process_started_at) < _SAME_PROCESS_S else None


def forget(layout: Layout) -> None:
    layout.state.unlink(missing_ok=True)


def _process_start(pid: int) -> float | None:
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None


def save_ports(layout: Layout, ports: Ports) -> None:
    layout.ports.write_text(json.dumps(asdict(ports)))


def saved_ports(layout: Layout) -> Ports | None:
    try:
        return Ports(**json.loads(layout.ports.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


async def take_lock(layout: Layout, *, wait_s: float = 0.5) -> IO[str]:
    """Lock the data directory; the lock ends when every holder of the open file is gone.

    The short wait covers a JVM that is just ending. Raises `BrokerBusyError` naming the process that holds it.
    """
    try:
        layout.root.mkdir(parents=True, exist_ok=True)
        file = layout.lock.open("a+")
    except OSError as error:
        raise BrokerError(f"the broker's data directory {layout.root} cannot be used: {error.strerror}") from error
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                file.close()
                raise _busy(layout) from None
            await asyncio.sleep(0.02)
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


def _busy(layout: Layout) -> BrokerBusyError:
    info = read_note(layout)
    pid = info.pid if info else _locker(layout)
    who = f"process {pid}" if pid else "another process"
    where = f" at {info.bootstrap_servers}" if info else ""
    return BrokerBusyError(
        f"the local broker in {layout.root} is already run by {who}{where}. Stop that one, use it with "
        "--bootstrap-servers, or choose another directory",
        pid,
    )


def _locker(layout: Layout) -> int | None:
    try:
        return int(layout.lock.read_text())
    except (OSError, ValueError):
        return None
