"""Functions in other processes, for code that computes for long or cannot be interrupted (`environments.context.Pool`).

Owns the processes and the queue before them. Invariants:

- Nothing runs until the first call: a worker whose environments are light pays nothing.
- A job that outlives its deadline, or whose process dies under it, fails alone: the process is replaced, and what waited behind
  the job goes to another one.
- At most `processes` work at a time, as many again while others are held up; at most `MAX_OPEN` calls are inside.
- No process outlives `close`, nor this process, however that ends (`pool_child`).

Own code, because nothing at hand does all of it. `concurrent.futures` and `loky` kill no single job, and one dead process
fails all that are under way; `pebble` and `anyio.to_process` do kill, at 100 and 175 µs of this process's CPU for a call whose
function returns at once (180 and 225 for the other two), against 50 here, where a thread (`offload`) costs 40. The price is
kept down by giving a process as many small jobs ahead as it works off in `AHEAD_S`; their answers are read in one go.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import pickle
from collections import deque
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import structlog

from schemas.errors import CapacityError, InfrastructureError, RolloutTimeout, VerifierError
from services.runtime.pool_process import Job, PoolProcess

log = structlog.get_logger()

T = TypeVar("T")

DEFAULT_TIMEOUT_S = 600.0
"""Of a call that names none: the verifier's own default."""

MAX_OPEN = 1_024
"""Calls inside at a time, their arguments pickled; further ones wait before they are. Enough for every process to stay busy
on short jobs; a megabyte each at worst is a gigabyte."""

AHEAD_S = 0.005
"""Work that a process may hold. More would make a job wait behind others while another process is idle; less would leave a
process idle while the loop that feeds it is busy."""

MAX_AHEAD = 64
"""Jobs that a process may hold, however small they are."""

STALL_S = 0.1
"""A process that has not answered for this long gives up the jobs behind the one it is at, as in `offload`."""

HELD_UP_S = 1.0
"""A process that is this long at one job does not count among the `processes`: neighbours need not wait for it."""

START_S = 60.0
"""A process that is not up after this long never will be; on a busy machine it takes a second."""

GRACE_S = 1.0
"""What a job may take that nobody waits for any more: a new process costs about as much."""

_TICK_S = 0.05
_LEARN = 0.2
"""Weight of the latest duration in the estimate for its kind; a shorter one counts at once."""


class ProcessPool:
    """Runs functions in processes of its own. Belongs to the event loop on which it is first used.

    `processes`: how many work at a time; 0 for as many as this process may use processors.
    """

    def __init__(self, processes: int = 0, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._limit = processes or usable_processors()
        self._timeout_s = timeout_s
        self._processes: list[PoolProcess] = []
        self._queue: deque[Job] = deque()
        self._estimates: dict[str, float] = {}
        self._room = asyncio.Semaphore(MAX_OPEN)
        self._held_up = 0
        self._numbers = 0
        self._scheduled = False
        self._closed = False
        self._ticking: asyncio.TimerHandle | None = None
        self._burials: set[asyncio.Task[None]] = set()

    @property
    def pids(self) -> list[int]:
        """Process ids of the processes that are running."""
        return [p.pid for p in self._processes]

    @property
    def queued(self) -> int:
        """Jobs that no process has taken yet."""
        return len(self._queue)

    async def start(self) -> None:
        """Nothing yet: processes start when there is work."""

    async def close(self) -> None:
        """End all processes; calls under way are cancelled."""
        self._closed = True
        if self._ticking is not None:
            self._ticking.cancel()
        for job in (*self._queue, *(j for p in self._processes for j in p.jobs)):
            job.future.cancel()
        self._queue.clear()
        for process in list(self._processes):
            self._bury(process, None)
        while self._burials:
            await asyncio.wait(self._burials)

    async def run(self, function: Callable[..., T], *args: Any, timeout_s: float | None = None) -> T:
        """`function(*args)` in another process; what it raises is raised here.

        Function, arguments and result must be picklable (a function: defined at the top of a module that can be imported).
        Raises `VerifierError` when the process died, `RolloutTimeout` when the call ran longer than `timeout_s`,
        `CapacityError` when it waited that long for a process, `InfrastructureError` when no process can be started.
        """
        async with self._room:
            if self._closed:
                raise InfrastructureError("the process pool is closed")
            job = self._job(function, args, timeout_s or self._timeout_s)
            self._queue.append(job)
            self._wake()
            try:
                result: T = await job.future
            finally:
                if job.future.cancelled():
                    self._abandon(job)
            return result

    def _job(self, function: Callable[..., Any], args: tuple[Any, ...], timeout_s: float) -> Job:
        try:
            body = pickle.dumps((function, args), protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as e:
            raise VerifierError(f"the call cannot be handed to another process: {e}", retryable=False) from e
        loop = asyncio.get_running_loop()
        self._numbers += 1
        kind = getattr(function, "__qualname__", "")
        return Job(self._numbers, kind, body, loop.create_future(), timeout_s, loop.time())

    def _abandon(self, job: Job) -> None:
        """Its caller was cancelled: never begin it, or give it a moment to end."""
        with contextlib.suppress(ValueError):
            self._queue.remove(job)
        job.timeout_s = min(job.timeout_s, GRACE_S)

    def _wake(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._assign)

    def _assign(self) -> None:
        """Hand out what waits, as far as there is room."""
        self._scheduled = False
        given: set[PoolProcess] = set()
        while self._queue and not self._closed:
            job = self._queue[0]
            job.estimate_s = self._estimates.get(job.kind, math.inf)
            try:
                process = self._next(job)
            except OSError as e:
                self._fail(self._queue.popleft(), InfrastructureError(f"no process can be started: {e}"))
                continue
            if process is None:
                break
            self._queue.popleft()
            if not process.jobs:
                process.since = asyncio.get_running_loop().time() if process.ready else process.since
            process.give(job)
            given.add(process)
        for process in given:
            process.flush()
        if self._processes and self._ticking is None and not self._closed:
            self._ticking = asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def _next(self, job: Job) -> PoolProcess | None:
        """The process to give a job to: an idle one, a new one, or the one that is through with its jobs first."""
        best = min(self._processes, key=lambda p: p.load_s, default=None)
        if best is not None and not best.jobs:
            return best
        if len(self._processes) < self._limit + self._held_up:
            return self._new()
        room = best is not None and len(best.jobs) < MAX_AHEAD and best.load_s + job.estimate_s <= AHEAD_S
        return best if room else None

    def _new(self) -> PoolProcess:
        process = PoolProcess(self, asyncio.get_running_loop().time())
        process.start()
        self._processes.append(process)
        return process

    def answered(self, job: Job, seconds: float, body: bytes) -> None:
        """Called by a process when one of its jobs is done."""
        known = self._estimates.get(job.kind, seconds)
        self._estimates[job.kind] = min(seconds, known + _LEARN * (seconds - known))
        if not job.future.done():
            _settle(job.future, body)
        if self._queue:
            self._wake()

    def died(self, process: PoolProcess) -> None:
        """Called by a process that ended by itself."""
        if process.ready:
            self._bury(process, lambda how: VerifierError(f"the process that ran it died ({how})"))
        else:
            self._bury(process, lambda how: InfrastructureError(f"a process of the pool ended before it was up ({how})"))

    def _bury(self, process: PoolProcess, blame: Callable[[str], Exception] | None) -> None:
        """Take a process out; its first job gets the blame, the others go on elsewhere."""
        if process in self._processes:
            self._processes.remove(process)
        if blame is not None:
            self._queue.extendleft(reversed(process.take_back(keep=1)))
            self._wake()
        process.kill()
        self._in_background(self._reap(process, blame))

    async def _reap(self, process: PoolProcess, blame: Callable[[str], Exception] | None) -> None:
        how = await process.wait()
        for job in process.jobs if blame is not None else ():
            self._fail(job, blame(how))  # type: ignore[misc]  # not None here

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._burials.add(task)
        task.add_done_callback(self._burials.discard)

    def _fail(self, job: Job, error: Exception) -> None:
        if not job.future.done():
            job.future.set_exception(error)

    def _tick(self) -> None:
        self._ticking = None
        now = asyncio.get_running_loop().time()
        busy = [p for p in self._processes if p.jobs]
        for process in busy:
            self._look_at(process, now)
        self._held_up = min(self._limit, sum(now - p.since > HELD_UP_S for p in busy if p.ready))
        self._dismiss()
        self._expire(now)
        if self._queue:
            self._wake()
        if any(p.jobs for p in self._processes) or self._queue or len(self._processes) > self._limit:
            self._ticking = asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def _look_at(self, process: PoolProcess, now: float) -> None:
        held, first = now - process.since, process.jobs[0]
        if not process.ready:
            if held > START_S:
                self._bury(process, lambda _: InfrastructureError(f"a process of the pool was not up after {START_S:g} s"))
        elif held > first.timeout_s:
            log.warning("pool.killed", pid=process.pid, held_s=round(held, 1), job=first.kind)
            text = f"it had not returned after {first.timeout_s:g} s; its process was killed"
            self._bury(process, lambda _: RolloutTimeout(text))
        elif held > STALL_S:
            self._queue.extendleft(reversed(process.take_back(keep=1)))
            process.load_s = math.inf

    def _dismiss(self) -> None:
        """End idle processes that stood in for others."""
        idle = [p for p in self._processes if not p.jobs]
        for process in idle[: max(0, len(self._processes) - self._limit - self._held_up)]:
            self._bury(process, None)

    def _expire(self, now: float) -> None:
        for job in [j for j in self._queue if now - j.queued > j.timeout_s]:
            self._queue.remove(job)
            self._fail(job, CapacityError(f"no process of the pool came free within {job.timeout_s:g} s"))


def usable_processors() -> int:
    """Processors that this process may use: those it is bound to, fewer where its control group is given less time."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text("ascii").split()
        return max(1, min(bound, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no such file, or "max": no limit
        return bound


def _settle(future: asyncio.Future[Any], body: bytes) -> None:
    try:
        succeeded, value = pickle.loads(body)  # noqa: S301 - from our own process
    except Exception as e:  # noqa: BLE001 - classes may refuse to be restored in any way
        future.set_exception(VerifierError(f"the result cannot be read: {e!r}", retryable=False))
        return
    if succeeded:
        future.set_result(value)
    else:
        future.set_exception(value)
