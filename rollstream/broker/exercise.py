"""What every run does to its broker, in small: makes its Java classes load, and shows that it works.

Owns nothing that lasts: the broker it is used on is thrown away.
"""

from __future__ import annotations

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from services.runtime.connection import Connection

_TOPIC = "exercise"
_GROUP = "exercise"
_RECORDS = 200


async def exercise(connection: Connection) -> int:
    """Create a topic, write and read it in transactions, as a member of a group. Returns the records read."""
    admin = AIOKafkaAdminClient(**connection.kwargs())
    await admin.start()
    try:
        await admin.create_topics([NewTopic(_TOPIC, 2, 1)])
        await _produce(connection)
        seen = await _consume(connection)
        await admin.list_consumer_group_offsets(_GROUP)
        return seen
    finally:
        await admin.close()


async def _produce(connection: Connection) -> None:
    async with AIOKafkaProducer(**connection.kwargs(), transactional_id="exercise") as producer:
        for _ in range(2):
            async with producer.transaction():
                for number in range(_RECORDS // 2):
                    await producer.send(_TOPIC, b"x" * 1_000, key=b"%d" % number)
                await producer.send_offsets_to_transaction({TopicPartition(_TOPIC, 0): 1}, _GROUP)


async def _consume(connection: Connection) -> int:
    consumer = AIOKafkaConsumer(
        _TOPIC,
        **connection.kwargs(),
        group_id=_GROUP,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    seen = 0
    async with consumer:
        for _ in range(20):
            batches = await consumer.getmany(timeout_ms=200)
            seen += sum(map(len, batches.values()))
            if seen >= _RECORDS - 1:  # the group's committed offset skips one
                break
        await consumer.commit()
    return seen
