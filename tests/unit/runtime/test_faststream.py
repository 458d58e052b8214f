"""What FastStream gives a worker: its document, and its in-memory broker up to the stage's door."""

import json

import pytest
from faststream.kafka import TestKafkaBroker
from faststream.specification import AsyncAPI
from unit.runtime.scripted import ScriptedSource, World, output_of, until

from schemas.topics import PROMPTS, TURNS, Topics
from services.runtime.connection import Connection
from services.runtime.record import TopicPartition
from services.runtime.stage import Stage, StageSettings
from services.runtime.worker import Pipeline, Worker

TOPICS = Topics("test", 1)
IN = TOPICS.name(TURNS)


def worker_of(world, step, *topics):
    """A worker whose stage is on paper behind its subscriber: deliveries and source are scripted."""
    pipeline = Pipeline(Connection("nowhere:9092"), TOPICS, dict.fromkeys(topics, 1))
    worker = Worker("paper", pipeline)
    bounds = StageSettings("copy", 10, 60.0)
    worker.add_stage(lambda _: Stage(bounds, step, lambda r, e: (), world.delivery), topics)
    return worker


def test_the_document_names_the_topics_and_the_server():
    worker = worker_of(World(), output_of, IN, TOPICS.name(PROMPTS))
    document = json.loads(AsyncAPI(worker.broker, title="rollstream").to_specification().to_json())
    assert document["asyncapi"].startswith("3.")
    assert {c["address"] for c in document["channels"].values()} == {IN, TOPICS.name(PROMPTS)}
    assert [s["host"] for s in document["servers"].values()] == ["nowhere:9092"]
    assert {o["action"] for o in document["operations"].values()} == {"receive"}


def test_the_app_is_the_workers_broker():
    worker = worker_of(World(), output_of, IN)
    assert worker.app.broker is worker.broker


@pytest.mark.parametrize("batch", [False, True], ids=["one by one", "as batches"])
async def test_what_is_published_in_memory_reaches_the_stage_as_it_is(batch):
    """FastStream neither decodes the values nor reads the headers, and the outputs are in the stage's commits.

    FastStream's test broker gives every record the offset 0, so each goes to a partition of its own.
    """
    world, got = World(commit_delay_s=0.0), []

    def step(record):
        got.append(record)
        return output_of(record)

    worker = worker_of(world, step, IN)
    stage, source = worker.stages[0], ScriptedSource(world)
    stage.attach(source)
    stage.start()
    values = [b"\xff not JSON", b'{"a": 1}', b"", b"\x00"]
    partitions = [TopicPartition(IN, n) for n in range(len(values))]
    async with TestKafkaBroker(worker.broker) as broker:
        source.assign(*partitions)
        stage.assign(set(partitions))
        await until(lambda: stage.ready, timeout_s=5, every_s=0.01)
        for round_ in ("fetched before the lanes opened", "fetched after"):
            for partition, value in zip(partitions, values, strict=True):
                if batch:
                    await broker.publish_batch(value, topic=IN, partition=partition.partition)
                else:
                    await broker.publish(value, IN, partition=partition.partition, key=b"k", headers={"x": "y"})
            if round_ == "fetched before the lanes opened":
                assert len(source.seeks) > len(partitions), "read again, not booked"
        await until(lambda: len(world.outputs) == len(values), timeout_s=5, every_s=0.01)
    assert sorted(r.value for r in got) == sorted(values)
    assert sorted(world.outputs) == sorted(values)
    assert batch or all(("x", b"y") in r.headers for r in got), "headers are bytes still"
    await stage.close()
