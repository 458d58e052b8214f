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
import ctypes
import sys
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import structlog

from schemas.errors import CapacityError, RolloutTimeout

log = structlog.get_logger()

T = TypeVar("T")

STALL_S = 0.1
"""A thread that does not answer for this long is busy with one job; the others go elsewhere. Well under the second that
neighbours may be delayed, well over the 5 ms for which CPython lets one thread hold the interpreter."""

MAX_THREADS = 64
"""Threads per worker, those held up included. Beyond this, jobs wait for one to come free (or for their deadline)."""

_USUAL_SWITCH_S = sys.getswitchinterval()
_HELD_UP_SWITCH_S = 0.001
"""How long a computing thread keeps the interpreter while somebody else wants it: with CPython's 5 ms, which the loop that
talks to Kafka waits at each of its wake-ups, 20 rollouts beside one that computes took 0.8 s longer, with 1 ms 0.15 s.
It costs a hand-over 5 µs more, so it holds only while a thread is held up."""

_SUPERVISE_S = 0.05

_END_S = 1.0
"""How long a thread that stops waits for environment code to take note of its cancellation."""


class _Job:
    """One call. `ticket` is taken by the thread that runs it: popping from a list is atomic, so only one thread can.

    `task` is what runs it there; asyncio itself would let a task go that only waits for something of its own.
    """

    __slots__ = ("call", "deadline", "future", "hand", "task", "ticket", "waits")

    def __init__(
        self, call: Callable[[], Coroutine[Any, Any, Any]], deadline: float, future: asyncio.Future[Any], waits: bool
    ) -> None:
        self.call = call
        self.waits = waits
        self.deadline = deadline
        self.future = future
        self.ticket = [None]
        self.hand: _Hand | None = None
        self.task: asyncio.Task[Any] | None = None

    def claim(self) -> bool:
        """Take the ticket; False when another thread was faster."""
        try:
            self.ticket.pop()
        except IndexError:
            return False
        return True

    def abandon(self) -> None:
        """Nobody waits for it any more: never begin, or cancel what runs (called on the owner's loop)."""
        self.claim()
        task = self.task
        if task is not None:
            with contextlib.suppress(RuntimeError):  # its thread has ended
                task.get_loop().call_soon_threadsafe(task.cancel)


class Offload:
    """Runs coroutines of environment code in side threads. Belongs to the event loop on which it was started."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._hands: dict[bool, list[_Hand]] = {False: [], True: []}  # those for code that waits under True
        self._held_up: set[_Hand] = set()
        self._jobs: set[_Job] = set()
        self._done: deque[tuple[_Job, Any, BaseException | None]] = deque()
        self._signalled = False
        self._supervisor: asyncio.Task[None] | None = None

    @property
    def held_up(self) -> int:
        """Threads that are set aside because one job holds them."""
        return len(self._held_up)

    async def start(self) -> None:
        """Start the first thread and its supervision."""
        self._loop = asyncio.get_running_loop()
        self._hands[False].append(_Hand(self._name, self))
        self._supervisor = self._loop.create_task(self._supervise())

    async def close(self) -> None:
        """Stop the threads; one that is held up is left behind (it is a daemon) and its job's caller is told."""
        if self._supervisor is not None:
            self._supervisor.cancel()
        for job in list(self._jobs):
            self._settle(job, None, asyncio.CancelledError())
        for hand in (*self._ready(), *self._held_up):
            hand.interrupt(self._loop.time())
            hand.stop()
        self._hands = {False: [], True: []}
        _adapt(self, held_up=False)

    def submit(self, call: Callable[[], Coroutine[Any, Any, T]], timeout_s: float, *, waits: bool = False) -> asyncio.Future[T]:
        """Run `call()` in a side thread; `waits`: in one for code that waits more than it computes.

        The future fails with `RolloutTimeout` after `timeout_s`, whether or not the code has noticed.
        """
        job = _Job(call, self._loop.time() + timeout_s, self._loop.create_future(), waits)
        self._hand(waits).take(job)
        self._jobs.add(job)
        job.future.add_done_callback(lambda future: self._gone(job) if future.cancelled() else None)
        return job.future

    def _gone(self, job: _Job) -> None:
        """The caller was cancelled."""
        self._jobs.discard(job)
        job.abandon()

    def finished(self, job: _Job, result: Any, error: BaseException | None) -> None:
        """Called by a side thread when a job has ended."""
        self._done.append((job, result, error))
        if not self._signalled:
            self._signalled = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        self._signalled = False
        while self._done:
            self._settle(*self._done.popleft())

    def _settle(self, job: _Job, result: Any, error: BaseException | None) -> None:
        self._jobs.discard(job)
        if job.future.done():
            return
        if error is None:
            job.future.set_result(result)
        elif isinstance(error, asyncio.CancelledError):
            job.future.cancel()
        else:
            job.future.set_exception(error)

    def _ready(self) -> list[_Hand]:
        return [hand for hands in self._hands.values() for hand in hands]

    def _hand(self, waits: bool) -> _Hand:
        hands = self._hands[waits]
        if not hands:
            if len(self._held_up) >= MAX_THREADS:
                raise CapacityError(f"all {MAX_THREADS} threads for environment code are held up by calls that do not return")
            hands.append(_Hand(self._name, self, waits=waits))
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
                    self._hand(job.waits).take(job)
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


_computing: set[Offload] = set()


def _adapt(owner: Offload, *, held_up: bool) -> None:
    """Share the interpreter out more finely while any thread of this process is held up."""
    if (owner in _computing) != held_up:
        (_computing.add if held_up else _computing.discard)(owner)
        sys.setswitchinterval(_HELD_UP_SWITCH_S if _computing else _USUAL_SWITCH_S)


class _Hand:
    """One side thread with an event loop of its own."""

    def __init__(self, name: str, owner: Offload, *, waits: bool = False) -> None:
        self._owner = owner
        self.waits = waits
        self._loop = asyncio.new_event_loop()
        self._inbox: deque[_Job] = deque()
        self._signalled = False
        self._asked = 0.0
        self._running: dict[asyncio.Task[Any] | None, _Job] = {}
        self._outstanding = 0
        self._leaving = False
        self.answered = True
        self._thread = threading.Thread(target=self._run, name=f"{name}-side", daemon=True)
        self._thread.start()

    def take(self, job: _Job) -> None:
        """Queue a job (called on the owner's loop)."""
        job.hand = self
        self._inbox.append(job)
        if not self._signalled:
            self._signalled = True
            self._loop.call_soon_threadsafe(self._begin)

    def silent_for(self, now: float) -> float:
        """Seconds since this thread was asked for a sign of life that it has not given; asks when it has."""
        if self.answered:
            self.answered = False
            self._asked = now
            self._loop.call_soon_threadsafe(self._answer)
            return 0.0
        return now - self._asked

    def interrupt(self, now: float) -> None:
        """Raise `RolloutTimeout` inside the job that holds this thread, if its time is up or nobody waits for it.

        Called until the thread answers: code may swallow one. Neither C code is interrupted nor a task that the job started.
        """
        ident, job = self._thread.ident, self._running.get(asyncio.current_task(self._loop))
        if job is not None and ident is not None and (job.deadline <= now or job.future.done()):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(RolloutTimeout))

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._loop.stop)

    def stop_when_idle(self) -> None:
        """End the thread once the jobs that are waiting inside it (for a judge, say) are done."""
        self._loop.call_soon_threadsafe(self._leave)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._loop.is_closed():
            try:
                self._loop.run_forever()
                break
            except RolloutTimeout:
                continue  # an interrupt that arrived after its job had ended
        self._end()

    def _end(self) -> None:
        """Cancel what still waits inside, and let it go."""
        rest = asyncio.all_tasks(self._loop)
        for task in rest:
            task.cancel()
        if rest:
            self._loop.run_until_complete(asyncio.wait(rest, timeout=_END_S))
        self._loop.close()

    def _answer(self) -> None:
        self.answered = True

    def _leave(self) -> None:
        self._leaving = True
        if not self._outstanding:
            self._loop.stop()

    def _begin(self) -> None:
        self._signalled = False
        while self._inbox:
            self._outstanding += 1
            self._loop.create_task(self._perform(self._inbox.popleft()))

    async def _perform(self, job: _Job) -> None:
        try:
            if job.claim():
                await self._call(job)
        finally:
            self._outstanding -= 1
            if self._leaving and not self._outstanding:
                self._loop.stop()

    async def _call(self, job: _Job) -> None:
        result: Any = None
        error: Exception | None = None
        job.task = task = asyncio.current_task()
        self._running[task] = job
        try:
            result = await job.call()
        except StopIteration as e:
            error = RuntimeError(f"environment code raised {e!r}")  # no future can hold it
        except Exception as e:  # noqa: BLE001 - everything belongs to the caller, an interrupt included
            error = e
        except BaseException as e:  # noqa: BLE001 - there it would end the worker (`sys.exit`) or its stage's own task
            error = RuntimeError(f"environment code raised {e!r}")
        self._running.pop(task, None)
        job.task = None
        self._owner.finished(job, result, error)
