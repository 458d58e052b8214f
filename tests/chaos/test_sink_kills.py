"""The single file while its sink is killed, and while the file cannot grow."""

from __future__ import annotations

import asyncio
import json

import pytest

from rollstream.ledger import read_ledger
from tests.chaos.account import account_of, all_once, lines_of, rollouts
from tests.chaos.havoc import say
from tests.chaos.traffic import Tail, flow, send

pytestmark = pytest.mark.chaos

RUN = "files"
KILLS = 6
LIMIT = 300_000


def stages(crew):
    model = crew.model("--latency", "0.02", "--vary-by-key")
    return [crew.worker("agent", "--model", model), crew.worker("tool"), crew.worker("verifier")]


def sink(crew, name, *arguments, **options):
    return crew.worker("sink", "--output", f"{crew.folder}/{name}.jsonl", "--run", RUN, *arguments, **options)


async def scored(kafka, topics, crew, tasks):
    """`tasks` x 2 rollouts on the topic, the workers gone; their identities."""
    workers = stages(crew)
    await asyncio.gather(*(w.ready() for w in workers))
    async with Tail(kafka, topics) as tail:
        expected = await send(kafka, topics, RUN, tasks)
        await workers[0].until(lambda: tail.count == len(expected), "all are scored", 60)
    assert [await w.terminate() for w in workers] == [0, 0, 0]
    return expected


@pytest.mark.timeout(240)
async def test_a_killed_sink_leaves_the_lines_of_an_unbroken_one(kafka, topics, crew, rng):
    """Killed while it starts and while it writes; what it makes is what an unbroken sink makes.

    It has a stable name, so that its successor has the partitions at once and is killed at work, not waiting for them.
    """
    workers, path = stages(crew), crew.folder / "broken.jsonl"
    await asyncio.gather(*(w.ready() for w in workers))
    enough = asyncio.Event()
    sending = asyncio.create_task(flow(kafka, topics, RUN, enough))
    sizes = []
    for _ in range(KILLS):
        one = sink(crew, "broken", "--instance", "writer")
        if rng.random() < 0.75:
            await one.ready()
        await asyncio.sleep(rng.uniform(0.0, 1.5))
        one.kill()
        sizes.append(path.stat().st_size if path.exists() else 0)
    enough.set()
    expected = await sending
    assert len(set(sizes)) >= KILLS // 2, sizes  # those that were killed while they started leave the file as it is
    last = await sink(crew, "broken", "--instance", "writer").ready()
    await last.until(lambda: len(rollouts(lines_of(path))) == len(expected), "the file is whole", 60)
    assert await last.terminate() == 0
    whole = await sink(crew, "unbroken").ready()
    await whole.until(lambda: _count(crew.folder / "unbroken.jsonl") == len(expected), "the other file is whole", 60)
    assert [await w.terminate() for w in (whole, *workers)] == [0, 0, 0, 0]
    say(f"bytes at each of {KILLS} kills: {sizes}")
    all_once(expected, rollouts(lines_of(path)), "the file")
    assert sorted(path.read_bytes().splitlines()) == sorted((crew.folder / "unbroken.jsonl").read_bytes().splitlines())
    assert lines_of(crew.folder / "broken_failures.jsonl") == []
    account = await account_of(kafka, topics, RUN)
    assert account.ledger.balanced, account.describe()
    assert account.ledger.all_scored, account.describe()


@pytest.mark.timeout(180)
async def test_a_file_that_cannot_grow_stops_the_sink_and_goes_on_later(kafka, topics, crew):
    """The largest file that the process may write stands for a full disk: the system refuses the write in the same way."""
    expected = await scored(kafka, topics, crew, 300)
    path = crew.folder / "one.jsonl"
    stopped = sink(crew, "one", file_limit=LIMIT)
    assert await stopped.end(60) == 1
    (message,) = [e["error"] for e in stopped.events() if e["event"] == "stopped"]
    assert message.startswith(f"cannot write {path}: File too large; raise the file size limit (ulimit -f)"), message
    assert lines_of(path)  # whole ones
    length = json.loads((crew.folder / "one.checkpoint.json").read_bytes())["results_bytes"]
    kept = path.read_bytes()[:length]
    assert 0 < len(kept) == length <= LIMIT
    again = sink(crew, "one", file_limit=LIMIT)
    assert await again.end(60) == 1  # still full: nothing is harmed by trying
    assert lines_of(path)
    assert path.read_bytes().startswith(kept)
    free = await sink(crew, "one").ready()
    await free.until(lambda: _count(path) == len(expected), "the file is whole", 60)
    assert await free.terminate() == 0
    assert path.read_bytes().startswith(kept)
    all_once(expected, rollouts(lines_of(path)), "the file")
    ledger = await read_ledger(kafka, topics, run=RUN)
    assert ledger.balanced
    assert ledger.all_scored


def _count(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0
