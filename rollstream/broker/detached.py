"""The local broker on its own: started by one process, used and stopped by others. What `rollstream broker` does.

Invariant: a broker is found only while it runs; a note left behind by a crash is never taken for one.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from rollstream.broker.errors import BrokerError
from rollstream.broker.jars import Report, to_stderr
from rollstream.broker.local import GRACE_S, LocalBroker
from rollstream.broker.paths import Layout, default_data_dir
from rollstream.broker.state import BrokerInfo, forget, read_note

_KILL_WAIT_S = 10.0


def start_detached(data_dir: Path | None = None, *, report: Report = to_stderr) -> BrokerInfo:
    """Start a broker that outlives this process, and wait until it can be used. Not from inside a running event loop.

    Raises `BrokerBusyError` when the directory's broker runs already, `BrokerError` when it does not start.
    """
    return asyncio.run(_start(data_dir, report))


async def _start(data_dir: Path | None, report: Report) -> BrokerInfo:
    broker = LocalBroker(data_dir, detached=True, report=report)
    await broker.start()
    return broker.leave_running()


def find_running(data_dir: Path | None = None) -> BrokerInfo | None:
    """The broker that serves this directory now, whoever started it, or None.

    One that is not `detached` ends with its starter: use it only when that is acceptable.
    """
    return read_note(_layout(data_dir))


def status(data_dir: Path | None = None) -> BrokerInfo | None:
    """The same as `find_running`, and clears away a note that a crash left."""
    layout = _layout(data_dir)
    info = read_note(layout)
    if info is None:
        forget(layout)
    return info


def stop(data_dir: Path | None = None, *, grace_s: float = GRACE_S) -> BrokerInfo | None:
    """Stop the broker of this directory, its data kept. Returns what ran, None when nothing did.

    Raises `BrokerError` when it cannot be stopped.
    """
    import psutil

    info = status(data_dir)
    if info is None:
        return None
    try:
        process = psutil.Process(info.pid)
        process.terminate()
        try:
            process.wait(grace_s)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(_KILL_WAIT_S)
    except psutil.NoSuchProcess:
        pass
    except psutil.Error as error:
        raise BrokerError(f"the local broker in {info.data_dir} (process {info.pid}) could not be stopped: {error}") from error
    forget(_layout(data_dir))
    return info


def _layout(data_dir: Path | None) -> Layout:
    return Layout((data_dir or default_data_dir()).absolute())
