"""Creating and checking the pipeline's topics, and offsets seen from outside, on a real broker."""

import asyncio
import time

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from support.brokers import eventually, unique_prefix

from schemas.topics import ALL, CONTROL, PROMPTS, TURNS, Topics
from services.runtime import admin
from services.runtime.admin import AdminError, Committed, TopicMismatchError, ensure_topics
from services.runtime.connection import Connection

pytestmark = pytest.mark.integration


@pytest.fixture
async def raw(kafka):
    client = AIOKafkaAdminClient(**kafka.kwargs())
    await client.start()
    yield client
    await client.close()


async def test_missing_topics_are_created_as_declared_and_a_second_call_changes_nothing(kafka):
    mine = Topics(prefix=unique_prefix(), partitions=3)
    first = await ensure_topics(kafka, mine)
    assert first.created == {mine.name(spec) for spec in ALL}
    assert first.partitions == {mine.name(spec): 1 if spec is CONTROL else 3 for spec in ALL}
    assert first.of(mine.name(TURNS)) == [TopicPartition(mine.name(TURNS), number) for number in range(3)]
    second = await ensure_topics(kafka, mine)
    assert second.created == frozenset()
    assert second.partitions == first.partitions


async def test_created_topics_have_their_size_and_policy(kafka, topics, raw):
    found = await admin._configurations(raw, [topics.name(PROMPTS), topics.name(CONTROL)])
    assert found[topics.name(PROMPTS)] == {"max.message.bytes": str(PROMPTS.max_message_bytes), "cleanup.policy": "delete"}
    assert found[topics.name(CONTROL)]["cleanup.policy"] == "compact"


async def test_creating_and_checking_are_quick(kafka):
    await ensure_topics(kafka, Topics(prefix=unique_prefix(), partitions=2))
    mine = Topics(prefix=unique_prefix(), partitions=2)
    best = min([await timed(ensure_topics(kafka, mine)) for _ in range(5)])
    assert best < 0.3


async def timed(work):
    begin = time.perf_counter()
    await work
    return time.perf_counter() - begin


async def test_many_processes_may_create_the_same_topics_at_once(kafka):
    mine = Topics(prefix=unique_prefix(), partitions=2)
    ready = await asyncio.gather(*(ensure_topics(kafka, mine) for _ in range(8)))
    assert len({frozenset(one.partitions.items()) for one in ready}) == 1
    assert sum(len(one.created) for one in ready) == len(ALL)


async def test_more_partitions_than_declared_are_reported_back(kafka, topics):
    fewer = Topics(prefix=topics.prefix, partitions=1)
    ready = await ensure_topics(kafka, fewer)
    assert ready.partitions[topics.name(PROMPTS)] == topics.partitions > 1


async def test_one_complaint_names_every_topic_that_does_not_fit(kafka, raw):
    mine = Topics(prefix=unique_prefix(), partitions=2)
    small, compacted, few = mine.name(PROMPTS), mine.name(TURNS), mine.name(CONTROL)
    await raw.create_topics(
        [
            NewTopic(small, 1, 1, topic_configs={"max.message.bytes": "1000"}),
            NewTopic(compacted, 2, 1, topic_configs={"max.message.bytes": "99999999", "cleanup.policy": "compact"}),
            NewTopic(few, 1, 1, topic_configs={"max.message.bytes": "99999999"}),
        ]
    )
    with pytest.raises(TopicMismatchError) as refused:
        await ensure_topics(kafka, mine)
    text = str(refused.value)
    assert f"topic {small}: max.message.bytes is 1000, wanted at least {PROMPTS.max_message_bytes}; " in text
    assert "it has 1 partitions, wanted at least 2" in text
    assert f"topic {compacted}: cleanup.policy is compact, wanted delete" in text
    assert f"topic {few}: cleanup.policy is delete, wanted compact" in text


async def test_a_refused_name_is_told_with_the_brokers_words(kafka):
    with pytest.raises(AdminError, match=r"bad/name\.prompts.*INVALID_TOPIC"):
        await ensure_topics(kafka, Topics(prefix="bad/name"))


async def test_a_silent_address_is_given_up_in_time():
    begin = time.monotonic()
    with pytest.raises(AdminError, match=r"no answer from Kafka at 127\.0\.0\.1:9 .*within 0\.5 s"):
        await ensure_topics(Connection("127.0.0.1:9"), Topics(), timeout_s=0.5)
    assert time.monotonic() - begin < 5


async def test_end_offsets_stop_at_an_open_transaction_unless_asked_otherwise(kafka, topics):
    name = topics.name(TURNS)
    async with AIOKafkaProducer(**kafka.kwargs(), transactional_id=f"{topics.prefix}.open") as producer:
        async with producer.transaction():
            await producer.send_and_wait(name, b"1", partition=0)

        async def committed_end():
            return (await admin.end_offsets(kafka, [name]))[TopicPartition(name, 0)]

        assert await eventually(committed_end, 2) == 2  # the record and the commit marker
        await producer.begin_transaction()
        await producer.send_and_wait(name, b"2", partition=0)
        assert await committed_end() == 2
        assert (await admin.end_offsets(kafka, [name], committed_only=False))[TopicPartition(name, 0)] == 3
        await producer.abort_transaction()


async def test_offsets_of_absent_topics_are_left_out_and_the_topics_not_created(kafka, topics):
    absent = f"{topics.prefix}.absent"
    offsets = await admin.end_offsets(kafka, [absent, topics.name(PROMPTS)])
    assert set(offsets) == {TopicPartition(topics.name(PROMPTS), number) for number in range(topics.partitions)}
    assert await admin.beginning_offsets(kafka, [absent]) == {}
    assert await admin.partitions_of(kafka, [absent]) == []


async def test_set_offsets_are_read_back_and_used_by_the_group(kafka, topics):
    name, group = topics.name(PROMPTS), topics.group("reader")
    first, second = (TopicPartition(name, number) for number in range(2))
    assert await admin.committed(kafka, group, [first, second]) == {}
    async with AIOKafkaProducer(**kafka.kwargs()) as producer:
        for number in range(5):
            await producer.send_and_wait(name, b"%d" % number, partition=0)
    await admin.set_committed(kafka, group, {first: 3})
    assert await admin.committed(kafka, group, [first, second]) == {first: Committed(3, "")}
    async with AIOKafkaConsumer(name, **kafka.kwargs(), group_id=group, auto_offset_reset="latest") as consumer:
        assert (await asyncio.wait_for(consumer.getone(), 20)).offset == 3
        with pytest.raises(AdminError, match="cannot be set while it has members; stop its consumers first"):
            await admin.set_committed(kafka, group, {first: 0}, timeout_s=5)


async def test_a_topic_that_appears_only_after_the_first_look_is_checked_all_the_same(kafka, topics, monkeypatch):
    describe, looks = admin._describe, []

    async def blind_at_first(client, declared):
        looks.append(1)
        return await describe(client, declared) if len(looks) > 1 else {}

    monkeypatch.setattr(admin, "_describe", blind_at_first)
    with pytest.raises(TopicMismatchError, match=r"it has 2 partitions, wanted at least 3"):
        await ensure_topics(kafka, Topics(prefix=topics.prefix, partitions=3), timeout_s=10)


async def test_topics_with_fewer_partitions_do_when_nobody_asked_for_a_number(kafka):
    """`rollstream run` makes 2 on a local broker; workers started later with the default of 12 work with them."""
    prefix = unique_prefix()
    await ensure_topics(kafka, Topics(prefix, 2))
    with pytest.raises(TopicMismatchError, match="wanted at least 12"):
        await ensure_topics(kafka, Topics(prefix, 12))
    found = await ensure_topics(kafka, Topics(prefix, 12), fewer_ok=True)
    assert found.partitions[Topics(prefix).name(PROMPTS)] == 2
