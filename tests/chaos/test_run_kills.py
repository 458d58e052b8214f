"""`rollstream run` with its own broker: killed, or told twice to stop; `--resume` completes it."""

from __future__ import annotations

import asyncio
import json
import signal
import time

import psutil
import pytest
from support.processes import Crew

from rollstream.broker import LocalBroker
from schemas import jsontext
from schemas.topics import Topics
from tests.chaos.account import account_of, all_once, lines_of, rollouts
from tests.chaos.havoc import say
from tests.chaos.traffic import row

pytestmark = pytest.mark.chaos

TASKS, REPEATS = 150, 2
EXPECTED = {(i, j) for i in range(TASKS) for j in range(REPEATS)}
PARTITIONS = 2
ORPHAN_S = 10.0
"""The broker that lost its starter: three seconds for a clean end, then it is killed."""


@pytest.fixture
def crew(tmp_path):
    with Crew(tmp_path) as mine:
        yield mine


@pytest.fixture
def start(crew):
    """Starts the command, with more arguments."""
    rows = crew.folder / "rows.jsonl"
    rows.write_bytes(b"".join(jsontext.dumps(row(i)) + b"\n" for i in range(TASKS)))
    model = crew.model("--latency", "uniform:0.1:0.5", "--vary-by-key")
    fixed = ["--input", str(rows), "--output", f"{crew.folder}/out.jsonl", "--model", model, "--repeats", str(REPEATS)]
    fixed += ["--concurrency", "16", "--set", f"claims.url={crew.folder}/claims"]
    return lambda *more: crew.rollstream("run", *fixed, *more)


def broker_of(crew):
    """The process id of the run's broker."""
    return json.loads((crew.folder / "broker" / "running.json").read_bytes())["pid"]


def lines_in(crew):
    path = crew.folder / "out.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


async def gone(process, pid):
    """Seconds until the broker has ended."""
    began = time.monotonic()
    await process.until(lambda: not _runs(pid), f"the broker {pid} has ended", 30)
    return time.monotonic() - began


def _runs(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def complete(crew, start):
    """Resume, and check that every rollout is there once: in the file, on the topic, in the ledger."""
    resumed = start("--resume")
    assert await resumed.end(90) == 0, resumed.tail(40)
    all_once(EXPECTED, rollouts(lines_of(crew.folder / "out.jsonl")), "the file")
    record = json.loads((crew.folder / "out_run.json").read_bytes())
    async with LocalBroker(crew.folder / "broker") as kafka:
        account = await account_of(kafka, Topics("rollstream", PARTITIONS), record["run_id"])
    assert account.failures == [], account.describe()
    assert account.ledger.balanced, account.describe()
    assert account.ledger.total.scored == len(EXPECTED), account.describe()
    all_once(EXPECTED, account.scored, "scored-rollouts")


@pytest.mark.timeout(180)
async def test_a_killed_run_leaves_no_broker_and_resumes(crew, start, rng):
    """Killed twice: in the first run and in its continuation."""
    for more, enough in (((), 1), (("--resume",), rng.randrange(60, 140))):
        one = start(*more)
        await one.until(lambda n=enough: lines_in(crew) >= n, "some lines", 60)
        pid = broker_of(crew)
        one.kill()
        had, took = lines_in(crew), await gone(one, pid)
        say(f"killed with {had} lines; its broker ended after {took:.1f} s")
        assert took < ORPHAN_S
        assert had < len(EXPECTED)
    await complete(crew, start)


@pytest.mark.timeout(180)
async def test_interrupted_twice_it_stops_at_once_and_resumes(crew, start):
    one = start()
    await one.until(lambda: lines_in(crew) > 0, "some lines", 60)
    pid = broker_of(crew)
    began = time.monotonic()
    one.signal(signal.SIGINT)
    await asyncio.sleep(0.05)
    one.signal(signal.SIGINT)
    assert await one.end(30) == 130, one.tail(40)
    took = time.monotonic() - began
    say(f"interrupted twice: ended after {took:.1f} s with {lines_in(crew)} lines")
    assert took < 15
    assert not _runs(pid)
    assert lines_in(crew) < len(EXPECTED)
    assert "--resume" in one.tail()
    await complete(crew, start)
