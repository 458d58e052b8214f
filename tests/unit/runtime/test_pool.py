"""The process pool: whatever a job does costs that job alone, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import uvloop
from support import pool_jobs as jobs

from schemas.errors import CapacityError, InfrastructureError, JudgeError, RolloutTimeout, VerifierError
from services.runtime import pool as pool_module
from services.runtime import pool_child
from services.runtime.pool import ProcessPool, usable_processors

ROOT = Path(__file__).parents[3]


@pytest.fixture(name="pool")
async def _pool() -> AsyncIterator[ProcessPool]:
    pool = ProcessPool(2)
    await pool.start()
    yield pool
    pids = pool.pids
    await pool.close()
    assert [p for p in pids if alive(p)] == []


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def until(condition, seconds=20.0):
    """Wait for something outside this process, which tells nobody when it happens."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


async def test_nothing_runs_before_the_first_call_and_one_process_serves_calls_in_turn(pool):
    assert pool.pids == []
    assert {await pool.run(jobs.pid) for _ in range(20)} == set(pool.pids)
    assert len(pool.pids) == 1


async def test_many_at_once_of_all_sizes_come_back_to_their_callers(pool):
    values = [b"x" * (7 ** (i % 8)) + str(i).encode() for i in range(600)]
    assert await asyncio.gather(*(pool.run(jobs.echo, v) for v in values)) == values
    assert len(pool.pids) == 2


@pytest.mark.parametrize(
    ("job", "kind", "text"),
    [
        (jobs.raise_judge, JudgeError, "no answer"),
        (jobs.raise_value, ValueError, "é\ud83d"),
        (jobs.raise_stubborn, RuntimeError, "Stubborn: a b"),
        (jobs.raise_stop, RuntimeError, "StopIteration"),
        (jobs.leave, RuntimeError, "SystemExit"),
        (jobs.unpicklable, TypeError, "result of type function"),
    ],
)
async def test_what_a_job_raises_is_raised_to_its_caller(pool, job, kind, text):
    args = [text] if job is jobs.raise_value else []
    with pytest.raises(kind) as caught:
        await pool.run(job, *args)
    assert text in str(caught.value)
    assert await pool.run(jobs.echo, 1) == 1
    assert len(pool.pids) == 1, "no process was lost over it"


async def test_a_rollouts_error_keeps_its_fields_and_says_where_it_was_raised(pool):
    with pytest.raises(JudgeError) as caught:
        await pool.run(jobs.raise_judge)
    assert (caught.value.detail, caught.value.retryable) == ("503", False)
    assert "raise_judge" in caught.value.__notes__[0]


async def test_a_call_that_cannot_travel_is_refused_here(pool):
    with pytest.raises(VerifierError, match="cannot be handed to another process"):
        await pool.run(jobs.echo, lambda: None)
    with pytest.raises(VerifierError, match="cannot be handed to another process"):
        await pool.run(lambda: 1)
    assert pool.pids == []


@pytest.mark.parametrize(("how", "told"), [("exit", "exit status 7"), ("SIGSEGV", "SIGSEGV"), ("SIGKILL", "SIGKILL")])
async def test_a_process_that_dies_costs_its_own_job_alone(pool, how, told):
    await asyncio.gather(*(pool.run(jobs.echo, i) for i in range(50)))  # short jobs go ahead in bulk from now on
    calls = [asyncio.ensure_future(pool.run(jobs.echo, i)) for i in range(60)]
    calls.insert(30, asyncio.ensure_future(pool.run(jobs.die, how)))
    found = await asyncio.gather(*calls, return_exceptions=True)
    error = found.pop(30)
    assert isinstance(error, VerifierError)
    assert told in str(error)
    assert found == list(range(60))


async def test_a_deadline_kills_what_holds_the_interpreter_and_the_neighbours_go_on(pool):
    await asyncio.gather(*(pool.run(jobs.echo, i) for i in range(50)))
    late = asyncio.ensure_future(pool.run(jobs.hold_interpreter, timeout_s=0.5))
    assert await asyncio.gather(*(pool.run(jobs.echo, i) for i in range(100))) == list(range(100))
    before = set(pool.pids)
    with pytest.raises(RolloutTimeout, match=r"0\.5 s"):
        await late
    killed = before - set(pool.pids)
    assert len(killed) == 1
    await until(lambda: not alive(*killed))


async def test_jobs_behind_a_slow_one_go_to_another_process(pool):
    await asyncio.gather(*(pool.run(jobs.sleep, 0) for _ in range(50)))  # as far as the pool knows, sleeping takes no time
    slow = asyncio.ensure_future(pool.run(jobs.sleep, 1.5))
    rest = asyncio.gather(*(pool.run(jobs.sleep, 0) for _ in range(40)))
    await asyncio.wait([slow, rest], return_when=asyncio.FIRST_COMPLETED)
    assert rest.done()
    assert not slow.done()
    assert await slow == 1.5


async def test_another_process_stands_in_for_one_that_is_held_up_and_goes_again(monkeypatch):
    monkeypatch.setattr(pool_module, "HELD_UP_S", 0.2)
    pool = ProcessPool(1)
    slow = asyncio.ensure_future(pool.run(jobs.sleep, 3.0))
    await asyncio.wait_for(pool.run(jobs.echo, 1), 2.5)
    assert not slow.done()
    assert len(pool.pids) == 2
    await slow
    await until(lambda: len(pool.pids) == 1)
    await pool.close()


async def test_who_waits_too_long_for_a_process_is_told(monkeypatch):
    monkeypatch.setattr(pool_module, "HELD_UP_S", 60.0)
    pool = ProcessPool(1)
    await pool.run(jobs.pid)
    slow = asyncio.ensure_future(pool.run(jobs.hold_interpreter))
    await asyncio.sleep(0)
    with pytest.raises(CapacityError, match=r"0\.3 s"):
        await pool.run(jobs.echo, 1, timeout_s=0.3)
    await pool.close()
    with pytest.raises(asyncio.CancelledError):
        await slow


async def test_a_cancelled_call_never_begins_or_soon_ends(tmp_path):
    pool = ProcessPool(1)
    held = asyncio.ensure_future(pool.run(jobs.write_and_hold, tmp_path / "held"))
    await until((tmp_path / "held").exists)
    queued = asyncio.ensure_future(pool.run(jobs.write, tmp_path / "queued"))
    await asyncio.sleep(0)
    queued.cancel()
    (pid,) = pool.pids
    held.cancel()
    await until(lambda: not alive(pid))
    assert await pool.run(jobs.echo, 1) == 1
    assert not (tmp_path / "queued").exists()
    await pool.close()


async def test_more_calls_than_may_be_inside_wait_their_turn(monkeypatch):
    monkeypatch.setattr(pool_module, "MAX_OPEN", 3)
    pool = ProcessPool(1)
    assert await asyncio.gather(*(pool.run(jobs.echo, i) for i in range(30))) == list(range(30))
    await pool.close()


async def test_closing_ends_what_runs_and_refuses_what_comes(tmp_path):
    pool = ProcessPool(2)
    held = [asyncio.ensure_future(pool.run(jobs.write_and_hold, tmp_path / str(i))) for i in range(3)]
    await until(lambda: sum(1 for _ in tmp_path.iterdir()) == 2)
    pids = pool.pids
    await pool.close()
    assert [p for p in pids if alive(p)] == []
    await asyncio.wait(held, timeout=5)
    assert all(h.cancelled() for h in held)
    with pytest.raises(InfrastructureError, match="closed"):
        await pool.run(jobs.echo, 1)
    await pool.close()


async def test_a_pool_whose_processes_do_not_come_up_says_so(monkeypatch, tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit(9)")
    monkeypatch.setattr(pool_child, "__file__", str(broken))
    pool = ProcessPool(1)
    with pytest.raises(InfrastructureError, match="exit status 9"):
        await pool.run(jobs.echo, 1)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with pytest.raises(InfrastructureError, match="no process can be started"):
        await pool.run(jobs.echo, 1)
    await pool.close()


PARENT = """
import asyncio, sys, pathlib
from support import pool_jobs as jobs
from services.runtime.pool import ProcessPool
async def main():
    pool = ProcessPool(2)
    held = asyncio.ensure_future(pool.run(jobs.write_and_hold, pathlib.Path(sys.argv[1])))
    await pool.run(jobs.shout, "not for the parent's output")
    while not pathlib.Path(sys.argv[1]).exists():
        await asyncio.sleep(0.01)
    print(*pool.pids, flush=True)
    await held
asyncio.run(main())
"""


async def test_processes_end_with_a_parent_that_is_killed(tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    line = [sys.executable, "-c", PARENT, str(tmp_path / "held")]
    parent = await asyncio.create_subprocess_exec(*line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    pids = [int(p) for p in (await asyncio.wait_for(parent.stdout.readline(), 30)).split()]
    assert len(pids) == 2
    assert all(map(alive, pids))
    parent.send_signal(signal.SIGKILL)
    await parent.wait()
    await until(lambda: not any(map(alive, pids)), 5)


def test_on_the_loop_that_workers_run_on():
    """uvloop differs where transports and child processes are concerned."""

    async def main():
        pool = ProcessPool(2)
        found = await asyncio.gather(*(pool.run(jobs.echo, i) for i in range(100)))
        with pytest.raises(VerifierError, match="exit status 7"):
            await pool.run(jobs.die, "exit")
        pids = pool.pids
        await pool.close()
        return found, [p for p in pids if alive(p)]

    assert uvloop.run(main()) == (list(range(100)), [])


def test_as_many_processes_as_there_are_processors():
    assert 1 <= usable_processors() <= os.cpu_count()
