"""SIGTERM under load: each worker drains within its deadline, with exit code 0; also while the broker is away."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.chaos.account import account_of, all_once, directory_lines, lines_of, rollouts
from tests.chaos.havoc import say
from tests.chaos.traffic import Tail, flow, send

pytestmark = pytest.mark.chaos

RUN = "drain"
DRAIN_S = 5.0
MARGIN_S = 5.0
"""After the drain: leaving the group, closing connections, the end of the interpreter, on a machine that is busy."""


def starts(crew):
    """How each worker is started, by name; the sink in both forms."""
    crew.settings = {**crew.settings, "deadlines.drain_timeout_s": f"{DRAIN_S:g}"}
    model = crew.model("--latency", "uniform:0.05:0.5", "--vary-by-key")
    return {
        "agent": lambda: crew.worker("agent", "--model", model),
        "tool": lambda: crew.worker("tool"),
        "verifier": lambda: crew.worker("verifier"),
        "file": lambda: crew.worker("sink", "--output", f"{crew.folder}/one.jsonl", "--run", RUN),
        "directory": lambda: crew.worker("sink", "--output", f"{crew.folder}/files/"),
    }


async def terminated(worker):
    """Seconds from SIGTERM to the end, which must be a good one."""
    began = time.monotonic()
    code = await worker.terminate(DRAIN_S + 60)
    assert code == 0, worker.tail()
    return time.monotonic() - began


async def finished(kafka, topics, crew, workers, tail, expected):
    """Wait for the last rollout, end everything, and check that each is there once."""
    path = crew.folder / "one.jsonl"
    await workers["agent"].until(lambda: tail.count == len(expected), "all have ended", 90)
    await workers["file"].until(lambda: path.exists() and path.read_bytes().count(b"\n") == len(expected), "all lines", 60)
    await asyncio.gather(*(terminated(w) for w in workers.values()))
    account = await account_of(kafka, topics, RUN)
    assert account.failures == [], account.describe()
    assert account.ledger.balanced, account.describe()
    assert account.ledger.total.scored == len(expected), account.describe()
    all_once(expected, account.scored, "scored-rollouts")
    all_once(expected, rollouts(lines_of(path)), "the single file")
    all_once(expected, rollouts(directory_lines(crew.folder / "files", RUN)), "the directory")


@pytest.mark.timeout(180)
async def test_sigterm_drains_and_loses_nothing(kafka, topics, crew):
    """Each worker in turn, under load; its successor goes on."""
    make = starts(crew)
    workers = {name: start() for name, start in make.items()}
    await asyncio.gather(*(w.ready() for w in workers.values()))
    took = {}
    async with Tail(kafka, topics) as tail:
        enough = asyncio.Event()
        sending = asyncio.create_task(flow(kafka, topics, RUN, enough))
        for name, start in make.items():
            await workers[name].until(lambda seen=tail.count: tail.count > seen, "rollouts end")
            took[name] = await terminated(workers[name])
            workers[name] = await start().ready()
        enough.set()
        await finished(kafka, topics, crew, workers, tail, await sending)
    say(*(f"{name} drained in {s:.1f} s" for name, s in took.items()))
    assert max(took.values()) < DRAIN_S + MARGIN_S, took


@pytest.mark.timeout(240)
async def test_sigterm_while_the_broker_is_away_ends_in_time_and_loses_nothing(own_broker, own_topics, own_crew):
    crew, kafka = own_crew, own_broker.connection
    make = starts(crew)
    workers = {name: start() for name, start in make.items()}
    await asyncio.gather(*(w.ready() for w in workers.values()))
    async with Tail(kafka, own_topics) as tail:
        expected = await send(kafka, own_topics, RUN, 300)
        await workers["agent"].until(lambda: tail.count > 50, "rollouts end")
        await own_broker.stop()
        took = dict(zip(workers, await asyncio.gather(*(terminated(w) for w in workers.values())), strict=True))
        say(*(f"{name} ended in {s:.1f} s without a broker" for name, s in took.items()))
        await own_broker.start()
        workers = {name: start() for name, start in make.items()}
        await asyncio.gather(*(w.ready() for w in workers.values()))
        await finished(kafka, own_topics, crew, workers, tail, expected)
    assert max(took.values()) < DRAIN_S + MARGIN_S, took
