"""One worker as a process: start, health, signals, drain, exit code.

Invariant: SIGTERM (or SIGINT) once drains within the deadline; a second one stops at once. Either way nothing is lost,
since what was not committed is done again by whoever has the partition next.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from typing import Any

import structlog

from services.runtime.health import Health
from services.runtime.worker import Worker

log = structlog.get_logger()

CLOSE_S = 4.0
"""After the drain, for leaving the groups and closing connections: it takes a tenth of a second, and without a broker as
long as one waits. With the default drain this stays under the 30 s after which Kubernetes kills."""

EXIT_OK, EXIT_FAILED, EXIT_STOPPED = 0, 1, 130


async def serve(workers: Sequence[Worker], health: Health, drain_timeout_s: float) -> int:
    """Run workers until a signal or a fatal error; the process's exit code."""
    stop, now = _on_signals()
    await health.start()
    log.info("health", url=health.url)
    failed = [asyncio.ensure_future(w.failed.wait()) for w in workers]
    asked = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.gather(*(w.start() for w in workers))
        log.info("started", workers=[w.name for w in workers])
        await asyncio.wait([asked, *failed], return_when=asyncio.FIRST_COMPLETED)
    finally:
        errors = [w.error for w in workers if w.error is not None]
        left = await _drain(workers, 0.0 if errors else drain_timeout_s, now)
        for waiting in (asked, *failed):
            waiting.cancel()
        await health.close()
    for error in errors:
        log.error("stopped", error=str(error))
    log.info("ended", left_to_others=left)
    return EXIT_FAILED if errors else EXIT_OK


async def _drain(workers: Sequence[Worker], timeout_s: float, now: asyncio.Event) -> int:
    """Stop the workers within `timeout_s`, or at once when `now` is set meanwhile; the number of records left to others.

    What is not closed `CLOSE_S` later is left to the operating system: everything that counts is committed.
    """
    stopping = asyncio.gather(*(w.stop(timeout_s) for w in workers))
    hurry = asyncio.ensure_future(now.wait())
    waiting: list[asyncio.Future[Any]] = [stopping, hurry]
    await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    hurry.cancel()
    left = sum(s.busy for w in workers for s in w.stages)
    if not stopping.done():
        for worker in workers:
            worker.hurry()
        await asyncio.wait([stopping], timeout=CLOSE_S)
    if not stopping.done():
        stopping.cancel()
        log.warning("not closed in time", waited_s=CLOSE_S)
        return left
    return sum(stopping.result())


def _on_signals() -> tuple[asyncio.Event, asyncio.Event]:
    """Events for the first and the second SIGTERM or SIGINT."""
    first, second = asyncio.Event(), asyncio.Event()

    def notice() -> None:
        (second if first.is_set() else first).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, notice)
    return first, second
