"""The side threads of `offload`: one kind for code that computes, one for code that waits.

Invariant: a job is run by one thread, the one that has taken its ticket, and its owner hears of it once; whatever else a
thread meets (an interrupt that comes late, a job whose caller is gone) costs no other job.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from schemas.errors import RolloutTimeout

_END_S = 1.0
"""How long a thread that stops waits for environment code to take note of its cancellation."""


class Job:
    """One call. `ticket` is taken by the thread that runs it: popping from a list is atomic, so only one thread can.

    `call` answers with the result or an awaitable of it. `task` is what runs it in a thread for waiting; asyncio itself would
    let a task go that only waits for something of its own.
    """

    __slots__ = ("call", "deadline", "future", "hand", "task", "ticket", "waits")

    def __init__(self, call: Callable[[], Any], deadline: float, future: asyncio.Future[Any], waits: bool) -> None:
        self.call = call
        self.waits = waits
        self.deadline = deadline
        self.future = future
        self.ticket = [None]
        self.hand: Hand | None = None
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

    def overdue(self, now: float) -> bool:
        """Whether its time is up, or nobody waits for it."""
        return self.deadline <= now or self.future.done()


class Owner(Protocol):
    """What the threads ask of an `Offload`; both are called by the thread itself."""

    def finished(self, job: Job, result: Any, error: BaseException | None) -> None:
        """A job has ended."""
        ...

    def waits_after_all(self, job: Job, result: Awaitable[Any]) -> None:
        """A plain function has answered with something to be awaited."""
        ...


class Hand(Protocol):
    """A side thread, as its supervision sees it (all on the owner's loop)."""

    @property
    def waits(self) -> bool:
        """Whether it is for code that waits."""
        ...

    @property
    def answered(self) -> bool:
        """Whether it is known to be free of the job for which it was last found silent."""
        ...

    def take(self, job: Job) -> None:
        """Queue a job."""
        ...

    def silent_for(self, now: float) -> float:
        """Seconds for which it has been at one thing, as far as it was watched."""
        ...

    def interrupt(self, now: float) -> None:
        """Raise `RolloutTimeout` inside the job that holds it, if the job's time is up or nobody waits for it.

        Called until the thread answers: code may swallow one. C code is not interrupted.
        """
        ...

    def stop(self) -> None:
        """End as soon as possible."""
        ...

    def stop_when_idle(self) -> None:
        """End once nothing waits inside it (for a judge, say) any more."""
        ...


R = TypeVar("R")


class _Interrupt(RolloutTimeout):
    """What an interrupt raises; the interpreter makes it without arguments."""

    def __init__(self) -> None:
        super().__init__("environment code was interrupted at its deadline")


class _Mark:
    """What a thread of ours runs at this moment, so that an interrupt reaches nothing else.

    Invariant: an interrupt is sent under the lock, while `job` is marked, and the mark is taken off under the lock, so it is
    raised before `run` has returned: in the job, or at the latest where the mark is taken off, which swallows it.
    """

    def __init__(self) -> None:
        self.job: Job | None = None
        self._lock = threading.Lock()

    def run(self, job: Job, call: Callable[[], R]) -> R:
        """`call()`, as a part of the job; in the thread itself."""
        self.job = job
        try:
            return call()
        finally:
            while True:  # in place, since a function's first instruction is a point at which an interrupt is raised
                try:
                    with self._lock:
                        self.job = None
                    break
                except RolloutTimeout:
                    continue

    def interrupt(self, thread: threading.Thread, now: float) -> None:
        """Raise `RolloutTimeout` in the part that runs, if its job is overdue; on the owner's loop."""
        with self._lock:
            if self.job is not None and self.job.overdue(now) and thread.ident is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_Interrupt))


class _Stepped:
    """Awaits what a job has answered with, and marks every step of it, from one wait to the next, as the job's."""

    def __init__(self, mark: _Mark, job: Job, answer: Awaitable[Any]) -> None:
        self._mark = mark
        self._job = job
        self._answer = answer

    def __await__(self) -> Generator[Any, Any, Any]:
        steps: Any = self._answer.__await__()
        step: Callable[[], Any] = partial(next, steps)
        while True:
            try:
                waited_for = self._mark.run(self._job, step)
            except StopIteration as e:
                return e.value
            try:
                yield waited_for  # asyncio sends nothing back
                step = partial(next, steps)
            except BaseException as e:
                if not hasattr(steps, "throw"):
                    raise
                step = partial(steps.throw, e)


def _told(error: BaseException) -> Exception:
    """The error as its caller gets it: no future can hold a StopIteration, and `sys.exit` would end the worker."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(f"environment code raised {error!r}")


class Computing:
    """A thread for plain functions: no event loop, one job after the other."""

    waits = False

    def __init__(self, name: str, owner: Owner) -> None:
        self._owner = owner
        self._inbox: SimpleQueue[Job | None] = SimpleQueue()
        self._mark = _Mark()
        self._watched: Job | None = None
        self._since = 0.0
        self._thread = threading.Thread(target=self._run, name=f"{name}-side", daemon=True)
        self._thread.start()

    @property
    def answered(self) -> bool:
        job = self._mark.job
        return job is None or job is not self._watched

    def take(self, job: Job) -> None:
        job.hand = self
        self._inbox.put(job)

    def silent_for(self, now: float) -> float:
        if self.answered:
            self._watched, self._since = self._mark.job, now
        return now - self._since if self._watched is not None else 0.0

    def interrupt(self, now: float) -> None:
        self._mark.interrupt(self._thread, now)

    def stop(self) -> None:
        self._inbox.put(None)

    stop_when_idle = stop

    def _run(self) -> None:
        while (job := self._inbox.get()) is not None:
            self._perform(job)

    def _perform(self, job: Job) -> None:
        result: Any = None
        error: Exception | None = None
        claimed = False

        def call() -> Any:
            nonlocal claimed
            claimed = job.claim()  # marked already: who gives a job up either takes its ticket or finds us at it
            return job.call() if claimed else None

        try:
            result = self._mark.run(job, call)
        except BaseException as e:  # noqa: BLE001 - everything belongs to the caller, an interrupt included
            error = _told(e)
        if not claimed and error is None:
            return
        if error is None and isinstance(result, Awaitable):
            self._owner.waits_after_all(job, result)
        else:
            self._owner.finished(job, result, error)


class Waiting:
    """A thread with an event loop: for async functions, many at a time."""

    waits = True

    def __init__(self, name: str, owner: Owner) -> None:
        self._owner = owner
        self._loop = asyncio.new_event_loop()
        self._inbox: deque[Job] = deque()
        self._signalled = False
        self._asked = 0.0
        self._mark = _Mark()
        self._outstanding = 0
        self._leaving = False
        self.answered = True
        self._thread = threading.Thread(target=self._run, name=f"{name}-waits", daemon=True)
        self._thread.start()

    def take(self, job: Job) -> None:
        job.hand = self
        self._inbox.append(job)
        if not self._signalled:
            self._signalled = True
            self._loop.call_soon_threadsafe(self._begin)

    def silent_for(self, now: float) -> float:
        if self.answered:
            self.answered = False
            self._asked = now
            self._loop.call_soon_threadsafe(self._answer)
            return 0.0
        return now - self._asked

    def interrupt(self, now: float) -> None:
        self._mark.interrupt(self._thread, now)  # a task that the job started is not seen

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._loop.stop)

    def stop_when_idle(self) -> None:
        self._loop.call_soon_threadsafe(self._leave)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._loop.is_closed():
            try:
                self._loop.run_forever()
                break
            except BaseException:  # noqa: BLE001, S112 - `sys.exit` in a task that a job started; the others go on
                continue
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

    async def _perform(self, job: Job) -> None:
        try:
            if job.claim():
                await self._call(job)
        finally:
            self._outstanding -= 1
            if self._leaving and not self._outstanding:
                self._loop.stop()

    async def _call(self, job: Job) -> None:
        result: Any = None
        error: Exception | None = None
        job.task = asyncio.current_task()
        try:
            result = self._mark.run(job, job.call)
            if isinstance(result, Awaitable):
                result = await _Stepped(self._mark, job, result)
        except BaseException as e:  # noqa: BLE001 - everything belongs to the caller, an interrupt included
            error = _told(e)
        job.task = None
        self._owner.finished(job, result, error)
