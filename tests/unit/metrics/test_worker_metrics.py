"""What a worker's counts become (platform.md G4), on paper and over its health port."""

import asyncio

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from unit.runtime.scripted import P0, ScriptedSource, World, output_of, until

from schemas.errors import FailureClass, ToolError
from schemas.topics import TURNS, Topics
from services.metrics.collect import of_worker, page
from services.metrics.exposition import text
from services.models.client import PolicyClient
from services.models.endpoint import ModelEndpoint
from services.models.named import Endpoints, NamedModels
from services.runtime.clients import Clients
from services.runtime.connection import Connection
from services.runtime.failures import Failures
from services.runtime.health import Health
from services.runtime.offload import Offload
from services.runtime.pool import ProcessPool
from services.runtime.stage import Stage, StageSettings
from services.runtime.worker import Pipeline, Worker
from services.sandbox.sandbox import SandboxService
from services.sandbox.sessions import LiveSessions
from services.sink.counting import Lines

TOPICS = Topics("test", 1)
ENDPOINT = ModelEndpoint(base_url="http://127.0.0.1:9/v1", name="policy-1", api_key="sk-do-not-show")


def worker(world, step=output_of):
    topic = TOPICS.name(TURNS)
    made = Worker("paper", Pipeline(Connection("nowhere:9092"), TOPICS, {topic: 1}))
    made.add_stage(lambda _: Stage(StageSettings("copy", 10, 60.0), step, lambda r, e: (), world.delivery), [topic])
    source = ScriptedSource(world)
    made.stages[0].attach(source)
    return made, source


def values(page_text):
    """Samples by name and label values."""
    return {(s.name, *s.labels.values()): s.value for f in text_string_to_metric_families(page_text) for s in f.samples}


async def test_a_scrape_says_what_the_stage_has_done_is_doing_and_has_before_it():
    world, free = World(), asyncio.Event()

    async def slow(record):
        if record.offset >= 3:
            await free.wait()
        await asyncio.sleep(0)
        return output_of(record)

    made, source = worker(world, slow)
    stage = made.stages[0]
    health = Health([made], "127.0.0.1", 0)
    await health.start()
    world.produce(5)
    source.assign(P0)
    stage.assign({P0})
    await until(lambda: made.ready)
    while stage.counters.finished < 3:
        await stage.receive(source.fetch())
        await asyncio.sleep(0.01)
    async with aiohttp.ClientSession() as session, session.get(health.url + "/metrics") as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        found = values(await answer.text())
    free.set()
    await health.close()
    await stage.close()
    assert found["rollstream_stage_delivered_total", "copy"] == 5
    assert found["rollstream_stage_finished_total", "copy"] == 3
    assert found["rollstream_stage_active", "copy"] == found["rollstream_stage_in_flight", "copy"] == 2
    assert found["rollstream_stage_lag", "copy", "in"] == 2
    assert found["rollstream_stage_seconds_count", "copy"] == 3
    assert found["rollstream_stage_oldest_seconds", "copy"] > 0
    assert found["rollstream_worker_ready", "paper"] == 1
    assert found["process_resident_memory_bytes",] > 1e6


async def test_clients_tell_what_they_count_and_no_secret():
    made, _ = worker(World())
    sandbox = SandboxService()
    models = NamedModels(Endpoints(ENDPOINT), budget_s=1.0)
    owned = [models, ProcessPool(1), sandbox]
    failures = Failures("failures", "tool", FailureClass.TOOL)
    lines = Lines()
    lines.counts.update(results=7, failures=1)
    made.clients += [Clients(models=models, sessions=LiveSessions(sandbox.launcher), owned=owned), Offload("x")]
    made.measured += [failures, lines]
    world = World()
    world.produce(1)
    failures.of_record(ToolError("no"), world.log[P0][0])
    assert ("rollstream_pool_queued", "paper") not in values(text(of_worker(made))), "nothing has started"
    await models.start()
    made.started = True
    said = text(of_worker(made))
    await models.close()
    found = values(said)
    url = PolicyClient(ENDPOINT).mask(ENDPOINT.base_url)
    assert found["rollstream_model_calls_total", "paper", "policy-1", url] == 0
    assert found["rollstream_model_breaker", "paper", "policy-1", url, "closed"] == 1
    assert found["rollstream_model_breaker", "paper", "policy-1", url, "open"] == 0
    assert found["rollstream_failures_total", "paper", "tool"] == 1
    assert found["rollstream_sink_lines_total", "results"] == 7
    for name in ("pool_processes", "pool_queued", "sandbox_programs", "sessions_live", "threads_held_up"):
        assert found[f"rollstream_{name}", "paper"] == 0
    assert "sk-do" not in said


@pytest.mark.parametrize("workers", [0, 1])
async def test_a_worker_that_has_not_begun_can_be_scraped(workers):
    made = [worker(World())[0] for _ in range(workers)]
    found = values(page(made))
    assert (("rollstream_worker_ready", "paper") in found) == bool(workers)
    assert any(name[0] == "rollstream_build_info" for name in found)
