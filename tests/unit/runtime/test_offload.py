"""Environment code in side threads: neighbours, deadlines, code that never returns, bounds, and the end.

Real threads and real time, since that is what is promised; limits are far from what is measured on an idle machine.
"""

import asyncio
import contextlib
import sys
import threading
import time

import pytest

from schemas.errors import CapacityError, RolloutTimeout, ToolError
from services.runtime import hands
from services.runtime import offload as module
from services.runtime.offload import Offload, told

NORMAL_S = 1.0
"""What a neighbour may be late by."""


@contextlib.asynccontextmanager
async def working():
    offload = Offload("test")
    await offload.start()
    try:
        yield offload
    finally:
        await offload.close()


@pytest.fixture(params=["def", "async def"])
def form(request):
    """Makes a plain function one of the two forms in which environment code comes."""

    def as_async(function):
        async def call():
            return function()

        return call

    return (lambda function: function) if request.param == "def" else as_async


def computing(seconds):
    """Python code that holds the interpreter whenever it may."""

    def call():
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass
        return "computed"

    return call


def quick():
    return threading.current_thread().name


def waits(form):
    return form(quick) is not quick


async def waiting(seconds):
    await asyncio.sleep(seconds)
    return "waited"


async def until_held_up(offload, count, timeout_s=5):
    """Until so many threads are set aside."""
    async with asyncio.timeout(timeout_s):
        while offload.held_up != count:  # noqa: ASYNC110 - threads are set aside, and end, when they do
            await asyncio.sleep(0.01)


async def freed(offload):
    await until_held_up(offload, 0)


async def test_a_result_and_an_error_come_back(form):
    async with working() as offload:
        assert await offload.submit(form(quick), 5, waits=waits(form)) == ("test-waits" if waits(form) else "test-side")

        async def broken():
            raise KeyError("x")

        with pytest.raises(KeyError):
            await offload.submit(broken, 5)
        assert await offload.submit(lambda: waiting(0.05), 5) == "waited"


@pytest.mark.parametrize(
    "error", [StopIteration("a"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError("own")], ids=repr
)
async def test_what_must_not_reach_the_workers_loop_comes_as_an_error(error):
    def at_once():
        raise error

    async def within():
        raise error

    async with working() as offload:
        for call in (at_once, within):
            with pytest.raises(RuntimeError):
                await offload.submit(call, 5)
        assert await offload.submit(quick, 5)


async def test_many_go_through_one_thread(form):
    async with working() as offload:
        assert len(set(await asyncio.gather(*(offload.submit(form(quick), 10, waits=waits(form)) for _ in range(5_000))))) == 1
        assert offload.held_up == 0


async def test_neighbours_of_code_that_computes_go_on(form):
    """One computes for three seconds; those that were queued behind it and those that come later are not held up."""
    async with working() as offload:
        began = time.perf_counter()
        long = offload.submit(form(computing(3)), 30, waits=waits(form))
        behind = [offload.submit(form(quick), 30, waits=waits(form)) for _ in range(50)]
        await asyncio.wait_for(asyncio.gather(*behind), NORMAL_S)
        await asyncio.wait_for(
            asyncio.gather(*(offload.submit(form(quick), 30, waits=waits(form)) for _ in range(50))), NORMAL_S
        )
        assert time.perf_counter() - began < 3
        assert await long == "computed"
        await freed(offload)


async def test_the_workers_loop_is_not_held_up():
    async with working() as offload:
        long = asyncio.gather(*(offload.submit(computing(1.5), 30) for _ in range(2)))
        worst = 0.0
        while not long.done():
            began = time.perf_counter()
            await asyncio.sleep(0)
            await asyncio.sleep(0.005)
            worst = max(worst, time.perf_counter() - began)
        assert worst < NORMAL_S / 2


async def test_code_that_never_returns_fails_at_its_deadline_and_is_interrupted(form):
    async with working() as offload:
        with pytest.raises(RolloutTimeout):
            await asyncio.wait_for(offload.submit(form(computing(3_600)), 0.5, waits=waits(form)), 0.5 + NORMAL_S)
        await freed(offload)
        assert await offload.submit(form(quick), 5, waits=waits(form))


async def test_a_deadline_shorter_than_a_stall_is_an_interrupt_too(form):
    """The job is past its deadline before its thread counts as held up."""
    async with working() as offload:
        with pytest.raises(RolloutTimeout):
            await offload.submit(form(computing(3_600)), 0.01, waits=waits(form))
        await until_held_up(offload, 1)
        await freed(offload)
        assert await offload.submit(form(quick), 5, waits=waits(form))


async def test_code_that_swallows_one_interrupt_gets_another(form):
    swallowed = []

    def stubborn():
        while True:
            try:
                while True:
                    pass
            except Exception as e:
                swallowed.append(e)
                if len(swallowed) == 3:
                    raise

    async with working() as offload:
        with pytest.raises(RolloutTimeout):
            await offload.submit(form(stubborn), 0.2, waits=waits(form))
        await freed(offload)
        assert len(swallowed) == 3


async def test_an_async_function_that_computes_after_a_wait_is_interrupted_although_others_began_since():
    async def later():
        await asyncio.sleep(0.2)
        while True:
            pass

    async with working() as offload:
        stuck = offload.submit(later, 0.6)
        await asyncio.gather(*(offload.submit(quick, 5) for _ in range(20)))
        with pytest.raises(RolloutTimeout):
            await stuck
        await freed(offload)


async def test_only_the_overdue_are_interrupted():
    """A neighbour in the same thread that computes within its own deadline is left alone."""
    async with working() as offload:
        overdue = offload.submit(lambda: waiting(30), 0.3)
        long = offload.submit(computing(1.5), 30)
        with pytest.raises(RolloutTimeout):
            await overdue
        assert await long == "computed"


async def test_interrupts_reach_overdue_jobs_only_however_often_they_are_sent():
    """Jobs that end at their deadline, more or less, beside many short ones, while interrupts come as fast as they can."""
    kept, lost = [], []

    async def overdue(seconds):
        computing(seconds)()
        await asyncio.sleep(0)
        computing(seconds)()

    async def short(n):
        for _ in range(5):
            await asyncio.sleep(0)
        return n

    async with working() as offload:
        both = [offload._hand(waits=kind) for kind in (False, True)]
        ended = threading.Event()
        loop = asyncio.get_running_loop()

        def interrupts():
            while not ended.is_set():
                for hand in both:
                    hand.interrupt(loop.time())

        pest = threading.Thread(target=interrupts, daemon=True)
        pest.start()
        try:
            for n in range(60):
                late = [offload.submit(lambda: overdue(0.001), 0.002, waits=True), offload.submit(computing(0.002), 0.002)]
                jobs = [offload.submit(lambda n=n: short(n), 20, waits=True) for n in range(20)]
                jobs += [offload.submit(lambda n=n: n, 20) for n in range(20)]
                kept += await asyncio.gather(*jobs, return_exceptions=True)
                lost += await asyncio.gather(*late, return_exceptions=True)
        finally:
            ended.set()
            pest.join(5)
        assert kept == [*range(20), *range(20)] * 60
        assert any(isinstance(r, RolloutTimeout) for r in lost)
        await freed(offload)


async def test_no_interrupt_is_raised_after_the_marked_part():
    """An overdue job in very short parts, under interrupts without a pause: each is raised within a part, or never."""
    mark = hands._Mark()
    job = hands.Job(quick, 0.0, asyncio.get_running_loop().create_future(), True)
    within, outside = [], []

    def works():
        try:
            for _ in range(20_000):
                try:
                    mark.run(job, lambda: sum(range(20)))
                except RolloutTimeout as e:
                    within.append(e)
                sum(range(20))
        except RolloutTimeout as e:
            outside.append(e)

    worker = threading.Thread(target=works)
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        worker.start()
        while worker.is_alive():
            mark.interrupt(worker, 1.0)
    finally:
        sys.setswitchinterval(usual)
        worker.join()
    assert within
    assert not outside
    assert mark.job is None


async def test_leaving_the_interpreter_in_a_task_of_its_own_ends_no_neighbour():
    async def leaves():
        sys.exit(3)

    async def starts():
        await asyncio.gather(asyncio.create_task(leaves()), return_exceptions=True)
        return "told"

    async with working() as offload:
        neighbour = offload.submit(lambda: waiting(0.2), 5)
        offload.submit(starts, 5).add_done_callback(lambda future: future.exception())
        assert await neighbour == "waited"


async def test_an_awaitable_without_throw_is_awaited():
    class Plain:
        def __await__(self):
            return iter([None, None])

    async with working() as offload:
        assert await offload.submit(Plain, 5, waits=True) is None


async def test_an_async_function_past_its_deadline_is_cancelled_where_it_waits():
    ended = threading.Event()

    async def forever():
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with working() as offload:
        with pytest.raises(RolloutTimeout):
            await offload.submit(forever, 0.2)
        assert await asyncio.to_thread(ended.wait, 5)


async def test_a_job_whose_caller_is_gone_ends():
    ended = threading.Event()

    async def forever():
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with working() as offload:
        job = offload.submit(forever, 60)
        stuck = offload.submit(computing(3_600), 60)
        await asyncio.sleep(0.05)
        job.cancel()
        await until_held_up(offload, 1)
        stuck.cancel()
        await freed(offload)
        assert await asyncio.to_thread(ended.wait, 5)


async def test_a_job_whose_caller_is_gone_before_it_began_never_begins(form):
    begun = []

    def call():
        begun.append(1)

    async with working() as offload:
        long = offload.submit(form(computing(0.08)), 30, waits=waits(form))
        job = offload.submit(form(call), 30, waits=waits(form))
        job.cancel()
        await long
        await offload.submit(form(quick), 5, waits=waits(form))
        assert not begun


async def test_threads_have_a_bound(monkeypatch, form):
    """Beyond it callers are told at once, and it ends when threads come back."""
    monkeypatch.setattr(module, "MAX_THREADS", 3)
    release = threading.Event()

    def blocked():
        release.wait(30)  # C code: no interrupt reaches it

    async with working() as offload:
        held = []
        for n in range(1, 4):
            held.append(offload.submit(form(blocked), 60, waits=waits(form)))
            await until_held_up(offload, n)
        with pytest.raises(CapacityError, match="all 3 threads"):
            offload.submit(form(blocked), 60, waits=waits(form))
        release.set()
        await asyncio.wait_for(asyncio.gather(*held), 10)
        await freed(offload)
        assert await offload.submit(form(quick), 5, waits=waits(form))


async def test_jobs_behind_the_last_thread_are_told_that_there_is_none(monkeypatch, form):
    monkeypatch.setattr(module, "MAX_THREADS", 1)
    release = threading.Event()

    def blocked():
        release.wait(30)

    async with working() as offload:
        held = offload.submit(form(blocked), 60, waits=waits(form))
        behind = [offload.submit(form(quick), 60, waits=waits(form)) for _ in range(3)]
        results = await asyncio.wait_for(asyncio.gather(*behind, return_exceptions=True), 5)
        assert [type(r) for r in results] == [CapacityError] * 3
        release.set()
        await held


async def test_closing_does_not_wait_for_a_stuck_thread():
    release = threading.Event()

    def blocked():
        release.wait(30)

    offload = Offload("test")
    await offload.start()
    stuck, async_one = offload.submit(blocked, 60), offload.submit(lambda: waiting(60), 60)
    await until_held_up(offload, 1)
    began = time.perf_counter()
    await offload.close()
    assert time.perf_counter() - began < NORMAL_S
    for job in (stuck, async_one):
        with pytest.raises(asyncio.CancelledError):
            await job
    release.set()


async def test_the_interpreter_is_shared_as_usual_when_the_worker_has_ended():
    usual = sys.getswitchinterval()
    async with working() as offload:
        stuck = offload.submit(computing(3_600), 60)
        await until_held_up(offload, 1)
        await asyncio.sleep(0.1)
    assert stuck.cancelled()
    assert sys.getswitchinterval() == usual


async def test_threads_end_with_the_worker():
    before = threading.active_count()
    async with working() as offload:
        await asyncio.gather(*(offload.submit(computing(0.3), 30) for _ in range(3)))
        endless = offload.submit(computing(3_600), 60)
        await until_held_up(offload, 1)
    assert endless.cancelled()
    async with asyncio.timeout(5):
        while threading.active_count() > before:  # noqa: ASYNC110 - threads end when they end
            await asyncio.sleep(0.01)


async def test_code_that_waits_has_a_thread_of_its_own():
    async with working() as offload:
        waits = offload.submit(lambda: waiting(0.3), 10, waits=True)
        await asyncio.sleep(0)
        computes = offload.submit(computing(3), 10)
        async with asyncio.timeout(NORMAL_S):
            assert await waits == "waited"
        computes.cancel()


@pytest.mark.parametrize(
    ("raised", "kind", "message"),
    [
        (RolloutTimeout("deadline"), RolloutTimeout, "it was late"),
        (CapacityError("full"), CapacityError, "full"),
        (KeyError("x"), ToolError, "who: KeyError('x')"),
    ],
)
async def test_whatever_becomes_of_a_job_is_told_as_one_rollout_error(raised, kind, message):
    def broken():
        raise raised

    async with working() as offload:
        with pytest.raises(kind) as found:
            await told(offload.submit(broken, 5), "it was late", ToolError, "who")
        assert str(found.value) == message
        assert await told(offload.submit(quick, 5), "it was late", ToolError, "who")


async def test_a_cancelled_job_stays_cancelled():
    async with working() as offload:
        job = offload.submit(lambda: waiting(30), 60, waits=True)
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await told(job, "it was late", ToolError, "who")
