"""The consuming core on a real Kafka: one small stage, all that can happen to its workers, and what comes out of it.

The input is written in small transactions, some of them aborted, so its offsets are full of gaps.
"""

import asyncio
import contextlib
import os
import signal
import struct
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.record.util import calc_crc32c
from support.brokers import unique_prefix
from support.core_member import STAGE, MemberConfig, member

from rollstream.ledger.reader import LogReader
from schemas.topics import Topics
from services.runtime import admin, position_codec
from services.runtime.connection import Connection
from services.runtime.record import Outgoing
from services.runtime.worker import Worker

pytestmark = pytest.mark.integration

TESTS = Path(__file__).parents[1]
DELIVERIES = ("exactly_once", "at_least_once")


# --- what goes in, what comes out ---


async def produce(config, numbers):
    """Records whose value is their number, in transactions of growing size; after every fifth, one that is aborted."""
    numbers = list(numbers)
    producer = AIOKafkaProducer(
        bootstrap_servers=config.bootstrap, transactional_id=f"{unique_prefix()}.input", linger_ms=0, retry_backoff_ms=5
    )
    await producer.start()
    try:
        at = count = 0
        while at < len(numbers):
            size = 1 + 3 * count
            async with producer.transaction():
                for n in numbers[at : at + size]:
                    await producer.send(config.source, b"%d" % n, key=b"%d" % (n % 97))
            at, count = at + size, count + 1
            if count % 5 == 0:
                await producer.begin_transaction()
                for _ in range(5):
                    await producer.send(config.source, b"never", key=b"k")
                await producer.flush()
                await producer.abort_transaction()
    finally:
        await producer.stop()


async def committed_values(config):
    values = []
    async with LogReader(Connection(config.bootstrap), [config.target]) as reader:
        await reader.read(await reader.ends([config.target]), {}, lambda r: values.append(r.value))
    return values


class Output:
    """Follows the committed output while a test goes on."""

    def __init__(self, config):
        self.config = config
        self.seen = Counter()

    async def __aenter__(self):
        self.consumer = AIOKafkaConsumer(
            self.config.target,
            bootstrap_servers=self.config.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        await self.consumer.start()
        return self

    async def __aexit__(self, *_):
        await self.consumer.stop()

    async def wait_for(self, distinct, timeout_s=45):
        """Until so many different values have come."""
        deadline = time.monotonic() + timeout_s
        while len(self.seen) < distinct:
            for records in (await self.consumer.getmany(timeout_ms=200)).values():
                self.seen.update(r.value for r in records)
            assert time.monotonic() < deadline, f"{len(self.seen)} of {distinct} values came"


async def assert_once(config, numbers):
    """Every number came out, none twice, and nothing else did. Asked of the topic, from its beginning."""
    await asyncio.sleep(0.5)  # what could come a second time would come now
    assert sorted(await committed_values(config), key=int) == [b"%d" % n for n in sorted(numbers)]


async def assert_all(config, numbers):
    """At least once: every number, and after dropping by identity just those."""
    assert sorted(set(await committed_values(config)), key=int) == [b"%d" % n for n in sorted(numbers)]


CHECKS = {"exactly_once": assert_once, "at_least_once": assert_all}


# --- workers ---


@pytest.fixture
def config(kafka, topics, rng):
    return MemberConfig(kafka.bootstrap_servers, topics.prefix, topics.partitions, seed=rng.randrange(1 << 30))


async def ready(worker, timeout_s=30):
    async with asyncio.timeout(timeout_s):
        while not worker.ready:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def running(config, step=None, *, drain_s=10):
    worker = member(config, step)
    await worker.start()
    await ready(worker)
    try:
        yield worker
    finally:
        await worker.stop(drain_s)


async def abandon(worker):
    """An end without a drain: what is in flight is dropped where it is."""
    await worker.stages[0].close()
    await worker.stop(0)


class Process:
    """A worker in a process of its own."""

    def __init__(self, config):
        self.config = config

    async def __aenter__(self):
        path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "support.core_member", self.config.argument()),
            stdout=asyncio.subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path},
        )
        async with asyncio.timeout(30):
            assert await self.process.stdout.readline() == b"ready\n"
        return self

    def signal(self, number):
        self.process.send_signal(number)

    async def __aexit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        await self.process.wait()


# --- the tests ---


@pytest.mark.parametrize("delivery", DELIVERIES)
async def test_every_record_comes_out_of_a_log_full_of_gaps(config, delivery):
    config = replace(config, delivery=delivery)
    await produce(config, range(3_000))
    async with running(config), Output(config) as output:
        await output.wait_for(3_000)
    await assert_once(config, range(3_000))  # nothing goes wrong here, so at-least-once is once, too
    found = await committed_positions(config)
    assert all(p.finished == 0 for p in found.values()), "everything is finished, so nothing beyond has to be told"


async def committed_positions(config):
    connection = Connection(config.bootstrap)
    inputs = await admin.partitions_of(connection, [config.source])
    found = await admin.committed(connection, config.topics.group(STAGE), inputs)
    return {p: position_codec.decode(c.offset, c.metadata) for p, c in found.items()}


@pytest.mark.parametrize("delivery", DELIVERIES)
async def test_a_worker_that_ends_in_the_middle_is_followed_by_another(config, delivery):
    config = replace(config, delivery=delivery, delays_s=(0.0, 0.01, 0.3))
    await produce(config, range(3_000))
    async with Output(config) as output:
        for so_far in (500, 1_200):
            worker = member(config)
            await worker.start()
            await output.wait_for(so_far)
            await abandon(worker)
        async with running(replace(config, seed=1)):
            await output.wait_for(3_000)
    await CHECKS[delivery](config, range(3_000))


@pytest.mark.parametrize("delivery", DELIVERIES)
async def test_kill_nine(config, delivery):
    config = replace(config, delivery=delivery, delays_s=(0.0, 0.01, 0.3), session_timeout_s=2.0)
    await produce(config, range(4_000))
    async with Output(config) as output:
        for so_far in (300, 1_000, 1_800):
            async with Process(replace(config, seed=so_far)) as victim:
                await output.wait_for(so_far)
                victim.signal(signal.SIGKILL)
        async with Process(config):
            await output.wait_for(4_000)
    await CHECKS[delivery](config, range(4_000))


@pytest.mark.parametrize("delivery", DELIVERIES)
async def test_members_that_come_and_go(config, delivery):
    """Rebalances in the middle: the second takes a partition, the first leaves, a third comes."""
    config = replace(config, delivery=delivery, delays_s=(0.0, 0.01, 0.3))
    await produce(config, range(2_000))
    async with Output(config) as output, contextlib.AsyncExitStack() as first:
        await first.enter_async_context(running(config))
        await output.wait_for(300)
        async with contextlib.AsyncExitStack() as second:
            worker = await second.enter_async_context(running(replace(config, seed=1)))
            assert len(worker.stages[0].lanes) == 1
            await output.wait_for(800)
            await produce(config, range(2_000, 3_000))
            await first.aclose()
            async with running(replace(config, seed=2)):
                await output.wait_for(2_200)
            await output.wait_for(3_000)
    await CHECKS[delivery](config, range(3_000))


@pytest.mark.parametrize("delivery", DELIVERIES)
async def test_a_zombie_comes_back(config, delivery):
    """Stopped for longer than its session lasts, with work in its hands; another does that work; then it goes on."""
    config = replace(config, delivery=delivery, delays_s=(0.0, 0.05, 0.5), session_timeout_s=2.0)
    await produce(config, range(1_500))
    async with Output(config) as output, Process(config) as zombie:
        await output.wait_for(200)
        zombie.signal(signal.SIGSTOP)
        async with Process(replace(config, seed=1)):
            await output.wait_for(1_500)
            zombie.signal(signal.SIGCONT)
            await produce(config, range(1_500, 2_500))
            await output.wait_for(2_500)
        await produce(config, range(2_500, 3_000))  # for the zombie alone
        await output.wait_for(3_000)
    await CHECKS[delivery](config, range(3_000))


@pytest.mark.parametrize("delivery", DELIVERIES)
async def test_what_is_finished_beyond_a_slow_record_is_not_done_again(config, delivery):
    """The commit's metadata outlives the worker."""
    config = replace(config, delivery=delivery)
    await produce(config, range(2_000))
    begun = []

    def copy(record):
        begun.append(int(record.value))
        out = [Outgoing(config.target, record.key, record.value)]
        return wait_for_ever() if int(record.value) % 500 == 3 and len(begun) <= 2_000 else out

    async def wait_for_ever():
        await asyncio.Event().wait()

    async with Output(config) as output:
        worker = member(config, copy)
        await worker.start()
        await output.wait_for(1_996)
        async with asyncio.timeout(10):
            while worker.stages[0].in_flight > 4:  # noqa: ASYNC110 - until the commit is known here, too
                await asyncio.sleep(0.01)
        await abandon(worker)
        assert sorted(begun) == list(range(2_000))
        positions = await committed_positions(config)
        assert sum(p.finished.bit_count() for p in positions.values()) > 1_000
        begun = [*range(2_000), "a restart"]
        async with running(config, copy):
            await output.wait_for(2_000)
        assert sorted(begun[2_001:]) == [3, 503, 1_003, 1_503]
    await assert_once(config, range(2_000))


async def test_notes_of_another_tool_stop_exactly_once_with_a_clear_word(config):
    await produce(config, range(100))
    group = config.topics.group(STAGE)
    inputs = await admin.partitions_of(Connection(config.bootstrap), [config.source])
    consumer = AIOKafkaConsumer(bootstrap_servers=config.bootstrap, group_id=group, enable_auto_commit=False)
    await consumer.start()
    consumer.assign(inputs)
    await consumer.commit(dict.fromkeys(inputs, (5, "backup before the migration")))
    await consumer.stop()
    worker = member(config)
    await worker.start()
    async with asyncio.timeout(20):
        await worker.failed.wait()
    await worker.stop(1)
    assert "Exactly-once will not guess" in str(worker.error)
    assert group in str(worker.error)
    assert not await committed_values(config)

    config = replace(config, delivery="at_least_once")
    async with running(config), Output(config) as output:  # "do it again" is what at-least-once makes of it
        await output.wait_for(50)


@pytest.mark.parametrize("delivery", DELIVERIES)
async def test_a_broker_that_is_restarted_in_the_middle(own_broker, broker_loop, rng, delivery):
    topics = Topics(unique_prefix(), 2)
    await asyncio.to_thread(broker_loop.run, admin.ensure_topics(own_broker.connection, topics))
    config = MemberConfig(
        own_broker.connection.bootstrap_servers,
        topics.prefix,
        2,
        delivery,
        delays_s=(0.0, 0.01, 0.3),
        seed=rng.randrange(9_999),
    )
    await produce(config, range(2_000))
    async with running(config) as worker:
        async with Output(config) as output:
            await output.wait_for(500)
        await asyncio.to_thread(broker_loop.run, own_broker.kill())
        await asyncio.sleep(2)
        await asyncio.to_thread(broker_loop.run, own_broker.start())
        async with Output(config) as output:
            await output.wait_for(2_000)
        assert not worker.failed.is_set()
    await CHECKS[delivery](config, range(2_000))


@pytest.mark.parametrize("delivery", DELIVERIES)
async def test_records_larger_than_a_batch_go_through(config, delivery):
    config = replace(config, delivery=delivery)
    large = {b"%d" % n: bytes([n]) * (2 << 20) for n in range(5)}
    producer = AIOKafkaProducer(bootstrap_servers=config.bootstrap, max_request_size=8 << 20)
    await producer.start()
    for key, value in large.items():
        await producer.send_and_wait(config.source, value, key=key)
        await producer.send_and_wait(config.source, b"small", key=key)
    await producer.stop()
    found = []
    async with running(config), Output(config) as output:
        await output.wait_for(6)
    async with LogReader(Connection(config.bootstrap), [config.target]) as reader:
        await reader.read(await reader.ends([config.target]), {}, found.append)
    assert {r.key: r.value for r in found if r.value != b"small"} == large
    assert len(found) == 10


@pytest.mark.parametrize("delivery", DELIVERIES)
async def test_headers_that_are_no_text_stop_nothing(config, delivery):
    config = replace(config, delivery=delivery)
    poison = [("x", b"\xff\xfe"), ("rs-run", b"\xc3\x28"), ("", b""), ("correlation_id", b"\x80"), ("content-type", b"\x00")]
    producer = AIOKafkaProducer(bootstrap_servers=config.bootstrap)
    await producer.start()
    for n in range(30):
        await producer.send_and_wait(config.source, b"%d" % n, key=b"\xff", headers=poison if n % 3 == 0 else None)
    await producer.stop()
    found = []
    async with running(config), Output(config) as output:
        await output.wait_for(30)
    async with LogReader(Connection(config.bootstrap), [config.target]) as reader:
        await reader.read(await reader.ends([config.target]), {}, found.append)
    assert [list(r.headers) for r in found if int(r.value) % 3 == 0] == [poison] * 10


async def send_undecodable(producer, topic, partition, count, at):
    """One batch in which the header of record `at` has a name that is not UTF-8, as clients in other languages may write it.

    aiokafka will not make such a name, so it is put into the finished batch and the check sum (CRC-32C, from byte 21) made
    again.
    """
    batch = producer.create_batch()
    for n in range(count):
        batch.append(key=b"k", value=b"%d" % n, timestamp=None, headers=[("name", b"v")] if n == at else [])
    data = bytearray(batch._build())
    data[data.index(b"name") : data.index(b"name") + 4] = b"\xff\xfe\xfd\xfc"
    data[17:21] = struct.pack(">I", calc_crc32c(bytes(data[21:])))
    batch._buffer = data
    await (await producer.send_batch(batch, topic, partition=partition))


@pytest.mark.parametrize("at", [0, 25, 49])
async def test_a_header_name_that_is_no_text_stops_nothing(config, at):
    """aiokafka raises in the middle of a fetch, with records of the other partition in its hands, at every try."""
    producer = AIOKafkaProducer(bootstrap_servers=config.bootstrap)
    await producer.start()
    for partition in (0, 1):
        for n in range(1_000, 1_400):
            await producer.send(config.source, b"%d" % (n + 1_000 * partition), partition=partition)
    await producer.flush()
    await send_undecodable(producer, config.source, 1, 50, at)
    for partition in (0, 1):
        for n in range(1_400, 2_000):
            await producer.send(config.source, b"%d" % (n + 1_000 * partition), partition=partition)
    await producer.stop()
    async with running(config), Output(config) as output:
        await output.wait_for(2_050)
    await assert_once(config, [*range(50), *range(1_000, 3_000)])


async def test_the_worker_says_who_it_is(config):
    async with running(config) as worker:
        assert isinstance(worker, Worker)
        assert worker.ready
        assert {p.partition for p in worker.stages[0].lanes} == {0, 1}
