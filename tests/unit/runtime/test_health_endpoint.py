"""The health of a worker over real HTTP on the loopback."""

import asyncio
import json

import aiohttp
import pytest
from unit.runtime.scripted import P0, ScriptedSource, World, output_of, until

from schemas.topics import TURNS, Topics
from services.runtime.connection import Connection
from services.runtime.health import Health
from services.runtime.stage import Stage, StageSettings
from services.runtime.worker import Pipeline, Worker

TOPICS = Topics("test", 1)


@pytest.fixture
async def serving():
    """A worker on paper, and its health."""
    world = World()
    topic = TOPICS.name(TURNS)
    worker = Worker("paper", Pipeline(Connection("nowhere:9092"), TOPICS, {topic: 1}))
    worker.add_stage(lambda _: Stage(StageSettings("copy", 10, 60.0), output_of, lambda r, e: (), world.delivery), [topic])
    source = ScriptedSource(world)
    worker.stages[0].attach(source)
    health = Health([worker], "127.0.0.1", 0)
    await health.start()
    async with aiohttp.ClientSession() as session:
        yield world, worker, source, health, session
    await health.close()
    await worker.stages[0].close()


async def get(session, health, path):
    async with session.get(health.url + path, timeout=aiohttp.ClientTimeout(5)) as answer:
        return answer.status, await answer.text()


async def test_a_worker_is_live_at_once_and_ready_when_its_partitions_are_open(serving):
    world, worker, source, health, session = serving
    assert await get(session, health, "/live") == (200, "live\n")
    assert await get(session, health, "/ready") == (503, "not ready: paper\n")
    hold = asyncio.Event()
    world.open_script.append(hold.wait)
    source.assign(P0)
    worker.stages[0].assign({P0})
    assert (await get(session, health, "/ready"))[0] == 503, "assigned, and not open yet"
    hold.set()
    await until(lambda: worker.ready, timeout_s=5)
    assert await get(session, health, "/ready") == (200, "ready\n")
    await worker.stages[0].revoked({P0})
    assert (await get(session, health, "/ready"))[0] == 503


async def test_a_worker_that_failed_is_live_and_not_ready(serving):
    _, worker, source, health, session = serving
    source.assign(P0)
    worker.stages[0].assign({P0})
    await until(lambda: worker.ready, timeout_s=5)
    worker.fail(RuntimeError("disk full"))
    assert (await get(session, health, "/ready"))[0] == 503
    assert (await get(session, health, "/live"))[0] == 200


async def test_the_status_is_json_with_counters_and_lanes(serving):
    world, worker, source, health, session = serving
    world.produce(5)
    stage = worker.stages[0]
    source.assign(P0)
    stage.assign({P0})
    await until(lambda: worker.ready, timeout_s=5)
    while not world.outputs:
        await stage.receive(source.fetch())
        await asyncio.sleep(0.01)
    await until(lambda: stage.counters.finished == 5, timeout_s=5)
    status, text = await get(session, health, "/status")
    assert status == 200
    (found,) = json.loads(text)["paper"]
    assert found["stage"] == "copy"
    assert found["lanes"] == {"in/0": "open"}
    assert (found["delivered"], found["finished"], found["active"], found["in_flight"]) == (5, 5, 0, 0)


@pytest.mark.parametrize("path", ["/", "/ready/..%2f", "/status?x=<script>", "/nothing"])
async def test_other_paths_are_not_found_or_harmless(serving, path):
    *_, health, session = serving
    status, text = await get(session, health, path)
    assert status in (200, 404)
    assert "<script>" not in text


async def test_it_takes_no_input(serving):
    *_, health, session = serving
    async with session.post(health.url + "/status", data=b"x" * 10_000) as answer:
        assert answer.status == 405


async def test_a_taken_port_is_told(serving):
    *_, health, _ = serving
    port = int(health.url.rsplit(":", 1)[1])
    with pytest.raises(OSError, match="address already in use"):
        await Health([], "127.0.0.1", port).start()
