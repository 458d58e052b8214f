import asyncio
import re

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from rollstream.producer import PromptProducer
from schemas import headers, jsontext
from schemas.errors import DataError, InfrastructureError
from schemas.identity import Place
from schemas.prompts import read_prompt
from schemas.topics import MAX_PROMPT_BYTES, PROMPTS, partition_of
from services.runtime.admin import AdminError
from services.runtime.connection import Connection

pytestmark = pytest.mark.integration

ROW = {"responses_create_params": {"input": "2+2?"}, "expected_answer": "4", "n": 2**70}


async def read_prompts(kafka, topics):
    consumer = AIOKafkaConsumer(**kafka.kwargs(), isolation_level="read_committed")
    await consumer.start()
    try:
        partitions = [TopicPartition(topics.name(PROMPTS), p) for p in range(topics.partitions)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        ends = await consumer.end_offsets(partitions)
        found = []
        while any([await consumer.position(tp) < end for tp, end in ends.items()]):
            for records in (await consumer.getmany(timeout_ms=200)).values():
                found += records
        return found
    finally:
        await consumer.stop()


def place(record):
    return Place(record.topic, record.partition, record.offset)


@pytest.mark.parametrize("form", ["json", "avro"])
async def test_a_prompt_arrives_as_it_was_sent(kafka, topics, form):
    async with PromptProducer(kafka, topics, form=form) as producer:
        receipt = await producer.send(
            ROW, run_id="r1", task_id="t1", task_index=7, repeats=3, environment="mcqa", timeout_s=9.5
        )
    (record,) = await read_prompts(kafka, topics)
    task = read_prompt(record.value, place(record))
    assert task.row == ROW
    assert [(r.run_id, r.task_index, r.rollout_index, r.group_size) for r in task.rollouts()] == [
        ("r1", 7, i, 3) for i in range(3)
    ]
    assert (task.prompt.environment, task.prompt.timeout_s) == ("mcqa", 9.5)
    assert record.key == b"r1/t1"
    assert record.partition == partition_of(record.key, topics.partitions)
    assert headers.value(record.headers, headers.RUN) == b"r1"
    assert re.fullmatch(rb"00-[0-9a-f]{32}-[0-9a-f]{16}-01", headers.value(record.headers, headers.TRACE) or b"")
    assert await receipt.place() == place(record)
    assert await receipt.rollouts() == task.rollouts()


async def test_without_a_task_id_the_place_is_the_identity(kafka, topics):
    async with PromptProducer(kafka, topics) as producer:
        receipts = [await producer.send(ROW, run_id="r1") for _ in range(20)]
        ids = {(await r.rollouts())[0].rollout_id for r in receipts}
    records = await read_prompts(kafka, topics)
    assert len(ids) == 20
    assert ids == {read_prompt(r.value, place(r)).rollouts()[0].rollout_id for r in records}
    assert len({r.partition for r in records}) > 1
    assert len({headers.value(r.headers, headers.TRACE) for r in records}) == 20


async def test_a_dataset_sent_again_is_the_same_rollouts(kafka, topics):
    other = {**ROW, "expected_answer": "5"}
    rows = [ROW, jsontext.dumps(other), jsontext.dumps(ROW).decode()]
    async with PromptProducer(kafka, topics) as producer:
        for _ in range(2):
            assert await producer.send_rows(rows, run_id="r1", repeats=2, environment="mcqa") == 3
    refs = [ref for r in await read_prompts(kafka, topics) for ref in read_prompt(r.value, place(r)).rollouts()]
    assert sorted({(r.task_index, r.rollout_index) for r in refs}) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
    assert len(refs) == 12


@pytest.mark.parametrize(
    ("row", "options", "expected"),
    [
        ({"question": "?"}, {}, "the row has no responses_create_params"),
        ({"responses_create_params": {"input": "x", "max_tokens": 3}}, {}, "responses_create_params.max_tokens: unknown key"),
        ({"responses_create_params": {"input": "x"}, "a": {"b": [1.0, float("nan")]}}, {}, "a.b.1 is not a finite number"),
        ('{"responses_create_params": {"input": "\\ud800"}}', {}, "not JSON"),
        ("{", {}, "not JSON"),
        (b"", {}, "not JSON"),
        (ROW, {"repeats": 0}, "repeats must be between 1 and"),
        (ROW, {"timeout_s": -1}, "timeout_s must be greater than 0"),
        ({**ROW, "pad": "x" * MAX_PROMPT_BYTES}, {}, "the limit is 16,777,216"),
    ],
)
async def test_what_admission_would_refuse_is_not_sent(kafka, topics, row, options, expected):
    async with PromptProducer(kafka, topics) as producer:
        with pytest.raises(DataError, match=re.escape(expected)):
            await producer.send(row, run_id="r1", **options)
        await producer.send(ROW, run_id="r1")
    assert len(await read_prompts(kafka, topics)) == 1


async def test_a_bad_row_in_a_dataset_is_named_by_its_number(kafka, topics):
    async with PromptProducer(kafka, topics) as producer:
        with pytest.raises(DataError, match=r"^row 2: the row has no responses_create_params"):
            await producer.send_rows([ROW, {}, ROW], run_id="r1")


async def test_own_indices_and_given_ones_may_not_meet(kafka, topics):
    async with PromptProducer(kafka, topics) as producer:
        with pytest.raises(DataError, match="task index 0 would stand for two tasks"):
            await producer.send_rows([ROW, {**ROW, "_ng_task_index": 0}], run_id="r1")


async def test_the_largest_row_is_sent_and_what_is_outstanding_is_bounded(kafka, topics, monkeypatch):
    monkeypatch.setattr("rollstream.producer.MAX_OUTSTANDING_BYTES", 20_000_000)
    big = {**ROW, "pad": "x" * (MAX_PROMPT_BYTES - 1_000)}
    most = 0
    async with PromptProducer(kafka, topics) as producer:
        for _ in range(3):
            await producer.send(big, run_id="r1")
            most = max(most, producer._outstanding)
    assert most < 20_000_000
    assert len(await read_prompts(kafka, topics)) == 3


async def test_no_broker_is_said_in_one_line(topics):
    producer = PromptProducer(Connection("127.0.0.1:1"), topics)
    with pytest.raises((AdminError, InfrastructureError), match=r"127\.0\.0\.1:1"):
        await asyncio.wait_for(producer.__aenter__(), 30)


async def test_a_thousand_prompts_keep_the_order_of_one_task(kafka, topics):
    async with PromptProducer(kafka, topics) as producer:
        for i in range(1000):
            await producer.send({**ROW, "i": i}, run_id="r1", task_id=f"t{i % 7}", first_rollout=i)
    seen: dict[str, list[int]] = {}
    for r in await read_prompts(kafka, topics):
        task = read_prompt(r.value, place(r))
        seen.setdefault(task.task_id, []).append(task.row["i"])
    assert sum(map(len, seen.values())) == 1000
    assert all(found == sorted(found) for found in seen.values())
