"""A record that the broker will never take stops the worker; it is never committed as finished."""

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from support.brokers import unique_prefix

from services.runtime.at_least_once import AtLeastOnce
from services.runtime.batches import Batches, RefusedRecordError
from services.runtime.delivery import Position
from services.runtime.exactly_once import ExactlyOnce
from services.runtime.offsets import Offsets
from services.runtime.record import Outgoing

pytestmark = pytest.mark.integration


@pytest.fixture
async def narrow(kafka):
    """An input topic, and an output topic that takes 2,000 bytes."""
    prefix = unique_prefix()
    admin = AIOKafkaAdminClient(**kafka.kwargs())
    await admin.start()
    await admin.create_topics(
        [NewTopic(f"{prefix}.in", 1, 1), NewTopic(f"{prefix}.out", 1, 1, topic_configs={"max.message.bytes": "2000"})]
    )
    await admin.close()
    return prefix


async def test_exactly_once_does_not_commit_a_position_whose_output_was_refused(kafka, narrow):
    offsets = Offsets(kafka, narrow, strict=True)
    delivery = ExactlyOnce(kafka, narrow, TopicPartition(f"{narrow}.in", 0), {f"{narrow}.out": 1}, offsets)
    await delivery.open()
    with pytest.raises(RefusedRecordError, match="MessageSizeTooLarge"):
        await delivery.commit([Outgoing(f"{narrow}.out", b"k", b"x" * 5_000)], Position(7))
    assert (await delivery.open()).offset is None
    await delivery.commit([Outgoing(f"{narrow}.out", b"k", b"fits")], Position(7))
    assert (await delivery.open()).offset == 7
    await delivery.close()
    await offsets.close()


async def test_at_least_once_does_not_commit_it_either(kafka, narrow):
    offsets, committed = Offsets(kafka, narrow, strict=False), []
    producer = AIOKafkaProducer(**kafka.kwargs(), enable_idempotence=True)
    await producer.start()

    async def batches():
        return Batches(producer, {f"{narrow}.out": 1})

    async def commit(*what):
        committed.append(what)

    delivery = AtLeastOnce(batches, TopicPartition(f"{narrow}.in", 0), offsets, commit)
    with pytest.raises(RefusedRecordError):
        await delivery.commit([Outgoing(f"{narrow}.out", b"k", b"x" * 5_000)], Position(7))
    assert committed == []
    await producer.stop()
    await offsets.close()
