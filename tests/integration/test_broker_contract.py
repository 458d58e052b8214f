"""What rollstream relies on in a broker, asked of every kind of broker that is to be had here."""

import asyncio
import json
import sys

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, OffsetMetadataTooLargeError, ProducerFenced, UnknownTopicOrPartitionError
from aiokafka.structs import OffsetAndMetadata
from support import brokers

from rollstream.broker import LocalBroker
from schemas.topics import FAILURES, SCORED, TURNS, Topics
from services.runtime import admin
from services.runtime.admin import Committed, ensure_topics

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

METADATA_LIMIT = 4096


@pytest.fixture(scope="module", params=brokers.KINDS)
def any_kafka(request, tmp_path_factory, broker_loop):
    """Each kind once. The session's own broker is reused for its kind."""
    reason = brokers.unavailable(request.param)
    if reason:
        pytest.skip(f"{request.param}: {reason}")
    if request.param == brokers.preferred():
        yield request.getfixturevalue("kafka")
        return
    with brokers.broker(request.param, tmp_path_factory.mktemp(request.param), broker_loop) as connection:
        yield connection


@pytest.fixture
async def mine(any_kafka):
    fresh = Topics(prefix=brokers.unique_prefix(), partitions=2)
    await ensure_topics(any_kafka, fresh)
    return fresh


async def read_all(connection, topic, isolation="read_committed"):
    """Every record of partition 0 up to what can be read now."""
    partition = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(
        **connection.kwargs(), isolation_level=isolation, max_partition_fetch_bytes=40 << 20
    ) as consumer:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        end = (await consumer.end_offsets([partition]))[partition]
        records = []
        while await consumer.position(partition) < end:
            records += (await consumer.getmany(timeout_ms=1000)).get(partition, [])
        return records


async def values(connection, topic, expected, isolation="read_committed"):
    """The values that can be read, once they are as expected or the wait for it is over."""

    async def ask():
        return [record.value for record in await read_all(connection, topic, isolation)]

    return await brokers.eventually(ask, expected)


async def committed(connection, group, partition, expected):
    async def ask():
        return await admin.committed(connection, group, [partition])

    return await brokers.eventually(ask, expected)


async def test_what_is_produced_is_consumed_with_key_value_and_headers(any_kafka, mine):
    topic = mine.name(TURNS)
    async with AIOKafkaProducer(**any_kafka.kwargs(), enable_idempotence=True) as producer:
        await producer.send_and_wait(topic, b"value", key=b"key", headers=[("h", b"\x00\xff")], partition=0)
    (record,) = await read_all(any_kafka, topic)
    assert (record.key, record.value, record.headers) == (b"key", b"value", (("h", b"\x00\xff"),))


async def test_the_largest_declared_record_fits(any_kafka, mine):
    topic, size = mine.name(SCORED), SCORED.max_message_bytes - 1024
    async with AIOKafkaProducer(**any_kafka.kwargs(), max_request_size=40 << 20) as producer:
        await producer.send_and_wait(topic, bytes(size), partition=0)
    (record,) = await read_all(any_kafka, topic)
    assert len(record.value) == size


async def test_a_topic_is_not_created_by_being_named(any_kafka, mine):
    absent = f"{mine.prefix}.absent"
    async with AIOKafkaProducer(**any_kafka.kwargs(), request_timeout_ms=1000, retry_backoff_ms=50) as producer:
        with pytest.raises((UnknownTopicOrPartitionError, KafkaError)):
            await producer.send_and_wait(absent, b"x", partition=0)
    assert await admin.partitions_of(any_kafka, [absent]) == []


async def test_readers_of_committed_records_never_see_an_aborted_one(any_kafka, mine):
    topic = mine.name(TURNS)
    async with AIOKafkaProducer(**any_kafka.kwargs(), transactional_id=f"{mine.prefix}.t") as producer:
        async with producer.transaction():
            await producer.send(topic, b"kept", partition=0)
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"dropped", partition=0)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(topic, b"kept too", partition=0)
    assert await values(any_kafka, topic, [b"kept", b"kept too"]) == [b"kept", b"kept too"]
    records = await read_all(any_kafka, topic)
    # Control records take offsets: "contiguous" can only be counted over delivered records.
    assert [record.offset for record in records] == [0, 4]
    assert b"dropped" in [record.value for record in await read_all(any_kafka, topic, "read_uncommitted")]


async def test_outputs_and_input_offset_become_visible_together_with_their_metadata(any_kafka, mine):
    source, target, group = TopicPartition(mine.name(TURNS), 0), mine.name(SCORED), mine.group("agent")
    metadata = "m" * METADATA_LIMIT
    async with AIOKafkaProducer(**any_kafka.kwargs(), transactional_id=f"{mine.prefix}.t") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(target, b"out", partition=0)
        await producer.send_offsets_to_transaction({source: OffsetAndMetadata(7, metadata)}, group)
        assert await admin.committed(any_kafka, group, [source]) == {}
        assert await read_all(any_kafka, target) == []
        await producer.commit_transaction()
    expected = {source: Committed(7, metadata)}
    assert await committed(any_kafka, group, source, expected) == expected
    assert await values(any_kafka, target, [b"out"]) == [b"out"]


async def test_metadata_beyond_its_limit_is_refused(any_kafka, mine):
    source, group = TopicPartition(mine.name(TURNS), 0), mine.group("agent")
    async with AIOKafkaConsumer(**any_kafka.kwargs(), group_id=group, enable_auto_commit=False) as consumer:
        consumer.assign([source])
        await consumer.commit({source: OffsetAndMetadata(1, "m" * METADATA_LIMIT)})
        with pytest.raises(OffsetMetadataTooLargeError):
            await consumer.commit({source: OffsetAndMetadata(2, "m" * (METADATA_LIMIT + 1))})
    assert (await admin.committed(any_kafka, group, [source]))[source].offset == 1


async def test_a_second_producer_of_the_same_transactional_id_fences_the_first(any_kafka, mine):
    topic, identity = mine.name(TURNS), f"{mine.prefix}.t"
    first = AIOKafkaProducer(**any_kafka.kwargs(), transactional_id=identity)
    second = AIOKafkaProducer(**any_kafka.kwargs(), transactional_id=identity)
    await first.start()
    try:
        await first.begin_transaction()
        await first.send_and_wait(topic, b"of the first", partition=0)
        await second.start()
        with pytest.raises(ProducerFenced):
            await first.commit_transaction()
        async with second.transaction():
            await second.send(topic, b"of the second", partition=0)
    finally:
        await asyncio.gather(first.stop(), second.stop(), return_exceptions=True)
    assert await values(any_kafka, topic, [b"of the second"]) == [b"of the second"]


MEMBER = """
import asyncio, json, sys
from aiokafka import AIOKafkaConsumer
async def main():
    topic, settings = json.loads(sys.argv[1])
    async with AIOKafkaConsumer(topic, **settings) as consumer:
        while len(consumer.assignment()) < 2:
            await consumer.getmany(timeout_ms=50)
        print("assigned", flush=True)
        await asyncio.sleep(300)
asyncio.run(main())
"""


async def test_the_partitions_of_a_killed_member_go_to_another_after_a_short_session(any_kafka, mine):
    settings = {"bootstrap_servers": any_kafka.bootstrap_servers, "group_id": mine.group("sink")}
    settings |= {"session_timeout_ms": 3000, "heartbeat_interval_ms": 500}
    topic = mine.name(FAILURES)
    member = await asyncio.create_subprocess_exec(
        sys.executable, "-c", MEMBER, json.dumps([topic, settings]), stdout=asyncio.subprocess.PIPE
    )
    assert await asyncio.wait_for(member.stdout.readline(), 30) == b"assigned\n"
    member.kill()
    await member.wait()
    async with AIOKafkaConsumer(topic, **settings) as heir, asyncio.timeout(20):
        while len(heir.assignment()) < 2:
            await heir.getmany(timeout_ms=100)


@pytest.mark.parametrize("way", ["stop", "kill"])
async def test_a_restarted_local_broker_keeps_its_address_records_and_offsets(tmp_path, way):
    broker = LocalBroker(tmp_path)
    connection = await broker.start()
    try:
        mine = Topics(partitions=2)
        await ensure_topics(connection, mine)
        partition = TopicPartition(mine.name(TURNS), 0)
        async with AIOKafkaProducer(**connection.kwargs(), transactional_id="t") as producer, producer.transaction():
            await producer.send(partition.topic, b"kept", partition=0)
            await producer.send_offsets_to_transaction({partition: OffsetAndMetadata(1, "so far")}, "g")
        await getattr(broker, way)()
        assert not broker.running
        assert await broker.start() == connection
        assert (await ensure_topics(connection, mine)).created == frozenset()
        assert await values(connection, partition.topic, [b"kept"]) == [b"kept"]
        expected = {partition: Committed(1, "so far")}
        assert await committed(connection, "g", partition, expected) == expected
    finally:
        await broker.stop()
