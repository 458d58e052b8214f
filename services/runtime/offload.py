"""Environment code off the event loop: verifiers, tools and seeds run in side threads that may be held up.

Owns the threads and their supervision. Invariants:

- The loop that talks to Kafka never runs environment code. A verifier that computes for 30 s delays its own rollout.
- Code that waits (`async def`: a judge, a sandbox) never shares a thread with code that computes (`def`).
- A thread that has not answered for `STALL_S` is set aside: work that it has not begun moves to another thread.
- Every job has a deadline. A job past it fails for its caller at once; what waits inside it is cancelled, and pure Python
  code that ignores that is interrupted. A job whose caller is gone ends alike.

Hand-overs are batched both ways: one wake-up carries everything that gathered, so a verification of 30 µs does not pay
100 µs for the trip.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import structlog

from schemas.errors import CapacityError, RolloutError, RolloutTimeout
from services.runtime.hands import Computing, Hand, Job, Waiting

log = structlog.get_logger()

T = TypeVar("T")

STALL_S = 0.1
"""A thread that does not answer for this long is busy with one job; the others go elsewhere. Well under the second that
neighbours may be delayed, well over the 5 ms for which CPython lets one thread hold the interpreter."""

MAX_THREADS = 64
"""Threads per worker that may be held up at a time. Beyond this a job fails at once with `CapacityError` (its rollout can be
tried again): waiting behind threads that do not return would use up its time and pile up jobs without a bound."""

_USUAL_SWITCH_S = sys.getswitchinterval()
_HELD_UP_SWITCH_S = 0.001
"""How long a computing thread keeps the interpreter while somebody else wants it: with CPython's 5 ms, which the loop that
talks to Kafka waits at each of its wake-ups, 20 rollouts beside one that computes took 0.8 s longer, with 1 ms 0.15 s.
It costs a hand-over 5 µs more, so it holds only while a thread is held up."""

_SUPERVISE_S = 0.05


class Offload:
    """Runs environment code in side threads. Belongs to the event loop on which it was started."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._hands: dict[bool, list[Hand]] = {False: [], True: []}  # those for code that waits under True
        self._held_up: set[Hand] = set()
        self._jobs: set[Job] = set()
        self._done: deque[tuple[Job, Any, BaseException | None]] = deque()
        self._signalled = False
        self._supervisor: asyncio.Task[None] | None = None

    @property
    def held_up(self) -> int:
        """Threads that are set aside because one job holds them."""
        return len(self._held_up)

    async def start(self) -> None:
        """Start the first thread and its supervision."""
        self._loop = asyncio.get_running_loop()
        self._hands[False].append(Computing(self._name, self))
        self._supervisor = self._loop.create_task(self._supervise())

    async def close(self) -> None:
        """Stop the threads; one that is held up is left behind (it is a daemon) and its job's caller is told."""
        if self._supervisor is not None:
            self._supervisor.cancel()
        for job in list(self._jobs):
            self._settle(job, None, asyncio.CancelledError())
            job.abandon()
        for hand in (*self._ready(), *self._held_up):
            hand.interrupt(self._loop.time())
            hand.stop()
        self._hands = {False: [], True: []}
        _adapt(self, held_up=False)

    def submit(self, call: Callable[[], T | Awaitable[T]], timeout_s: float, *, waits: bool = False) -> asyncio.Future[T]:
        """Run `call()` in a side thread, and what it answers with too if that is an awaitable.

        `waits` says that it will be one: it then begins in a thread for waiting. Else it gets there when it is.

        The future fails with `RolloutTimeout` after `timeout_s`, whether or not the code has noticed. Raises `CapacityError`,
        or the future fails with it, when `MAX_THREADS` threads are held up.
        """
        job = Job(call, self._loop.time() + timeout_s, self._loop.create_future(), waits)
        self._hand(waits=waits).take(job)
        self._jobs.add(job)
        job.future.add_done_callback(lambda future: self._gone(job) if future.cancelled() else None)
        return job.future

    def _gone(self, job: Job) -> None:
        """The caller was cancelled."""
        self._jobs.discard(job)
        job.abandon()

    def finished(self, job: Job, result: Any, error: BaseException | None) -> None:
        """Called by a side thread when a job has ended."""
        self._done.append((job, result, error))
        if not self._signalled:
            self._signalled = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._collect)

    def waits_after_all(self, job: Job, result: Awaitable[Any]) -> None:
        """Called by a side thread: the rest of a job belongs into a thread for waiting."""
        with contextlib.suppress(RuntimeError):  # as above
            self._loop.call_soon_threadsafe(self._go_on, job, result)

    def _go_on(self, job: Job, result: Awaitable[Any]) -> None:
        if job.future.done():
            if isinstance(result, Coroutine):
                result.close()
            return
        job.call, job.ticket, job.waits = (lambda: result), [None], True
        try:
            self._hand(waits=True).take(job)
        except CapacityError as e:
            self._settle(job, None, e)

    def _collect(self) -> None:
        self._signalled = False
        while self._done:
            self._settle(*self._done.popleft())

    def _settle(self, job: Job, result: Any, error: BaseException | None) -> None:
        self._jobs.discard(job)
        if job.future.done():
            return
        if error is None:
            job.future.set_result(result)
        elif isinstance(error, asyncio.CancelledError):
            job.future.cancel()
        else:
            job.future.set_exception(error)

    def _ready(self) -> list[Hand]:
        return [hand for hands in self._hands.values() for hand in hands]

    def _hand(self, *, waits: bool) -> Hand:
        hands = self._hands[waits]
        if not hands:
            if len(self._held_up) >= MAX_THREADS:
                raise CapacityError(f"all {MAX_THREADS} threads for environment code are held up by calls that do not return")
            hands.append((Waiting if waits else Computing)(self._name, self))
        return hands[-1]

    async def _supervise(self) -> None:
        while True:
            await asyncio.sleep(_SUPERVISE_S)
            if self._jobs or self._held_up or not all(hand.answered for hand in self._ready()):
                now = self._loop.time()
                self._set_aside(now)
                self._take_back()
                self._expire(now)
                _adapt(self, held_up=bool(self._held_up))

    def _set_aside(self, now: float) -> None:
        for hand in self._ready():
            if hand.silent_for(now) < STALL_S:
                continue
            self._hands[hand.waits].remove(hand)
            self._held_up.add(hand)
            for job in [j for j in self._jobs if j.hand is hand and j.ticket]:
                try:
                    self._hand(waits=job.waits).take(job)
                except CapacityError as e:
                    self._settle(job, None, e)

    def _take_back(self) -> None:
        for hand in [h for h in self._held_up if h.answered]:
            self._held_up.discard(hand)
            if self._hands[hand.waits]:
                hand.stop_when_idle()
            else:
                self._hands[hand.waits].append(hand)

    def _expire(self, now: float) -> None:
        for job in [j for j in self._jobs if j.deadline <= now]:
            self._settle(job, None, RolloutTimeout("environment code did not return within its deadline"))
            job.abandon()
        for hand in self._held_up:
            hand.interrupt(now)


async def told(work: Awaitable[T], late: str, blame: type[RolloutError], who: str) -> T:
    """What environment code off the loop comes to; raises one `RolloutError`, whatever became of it.

    A deadline that passed is told as `late`; what is no `RolloutError` is one of kind `blame` that names `who`.
    """
    try:
        return await work
    except RolloutTimeout as e:
        raise RolloutTimeout(late) from e
    except RolloutError:
        raise
    except Exception as e:
        raise blame(f"{who}: {e!r}") from e


_computing: set[Offload] = set()


def _adapt(owner: Offload, *, held_up: bool) -> None:
    """Share the interpreter out more finely while any thread of this process is held up."""
    if (owner in _computing) != held_up:
        (_computing.add if held_up else _computing.discard)(owner)
        sys.setswitchinterval(_HELD_UP_SWITCH_S if _computing else _USUAL_SWITCH_S)
