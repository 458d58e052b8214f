import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition

from rollstream.trainer import ScoredRollouts
from schemas import codec, headers, jsontext
from schemas.errors import DataError, InfrastructureError
from schemas.events import Payload, Scored
from schemas.identity import Place, RolloutRef
from schemas.topics import SCORED
from services.runtime.admin import committed, ensure_topics
from services.runtime.claims import ClaimStore, claim_name, claim_of

pytestmark = pytest.mark.integration


@pytest.fixture
def topics(topics):
    return replace(topics, prefix=f"{topics.prefix}-three", partitions=3)


@pytest.fixture
async def log(kafka, topics):
    """Writes scored records; the topics exist."""
    await ensure_topics(kafka, topics)
    producer = AIOKafkaProducer(**kafka.kwargs(), enable_idempotence=True)
    await producer.start()
    yield Log(producer, topics)
    await producer.stop()


class Log:
    def __init__(self, producer, topics):
        self._producer = producer
        self.topic = topics.name(SCORED)
        self._next = 0

    async def put(self, value, found=(), partition=0, at_ms=None):
        sent = await self._producer.send_and_wait(self.topic, value, b"k", partition, at_ms, headers=list(found))
        return sent.offset

    async def score(self, n=1, *, run="r", partition=None, at_ms=None):
        for _ in range(n):
            i, self._next = self._next, self._next + 1
            ref = RolloutRef(run, f"t{i}", i, 0)
            where = i % 3 if partition is None else partition
            await self.put(line(i), [*headers.of(ref), (headers.ENVIRONMENT, b"mcqa")], where, at_ms)


def line(i, **more):
    return jsontext.dumps({"reward": i / 2, "_ng_task_index": i, "_ng_rollout_index": 0, "response": {"id": f"x{i}"}, **more})


async def take(stream, n, timeout_s=20):
    found = []
    while len(found) < n:
        rollout = await stream.next(timeout_s)
        assert rollout is not None, f"only {len(found)} of {n} came"
        found.append(rollout)
    return found


def indices(rollouts):
    return sorted(r.task_index for r in rollouts)


async def test_json_lines_become_rollouts(kafka, topics, log):
    await log.score(partition=1)
    async with ScoredRollouts(kafka, topics) as stream:
        rollout = await stream.next(20)
        assert rollout is not None
        assert await stream.next(0.2) is None
    assert (rollout.run_id, rollout.rollout_id, rollout.environment) == ("r", "0-0", "mcqa")
    assert (rollout.task_index, rollout.rollout_index, rollout.attempt, rollout.reward) == (0, 0, 0, 0.0)
    assert rollout.place == Place(log.topic, 1, 0)
    assert rollout.line == line(0)
    assert rollout.response == {"id": "x0"}
    assert abs(datetime.now(UTC).timestamp() * 1000 - rollout.timestamp_ms) < 60_000


async def test_avro_and_claims_are_read_as_well(kafka, topics, log, tmp_path):
    ref = RolloutRef("r", "t", 5, 2, 1)
    store, big = ClaimStore(str(tmp_path)), line(5, pad="y" * 1_000)
    claim = claim_of(big)
    name = claim_name(ref, "line", claim)
    await store.put(name, big)
    source = Place("p", 0, 0)
    await log.put(codec.encode(Scored(ref, "mcqa", "a", source, 2.5, Payload(line(5)))))
    await log.put(codec.encode(Scored(ref, "mcqa", "a", source, 2.5, Payload(size=claim.size, crc=claim.crc))))
    await log.put(b"", [(headers.CLAIM, name.encode())])
    async with ScoredRollouts(kafka, topics, claims_url=str(tmp_path)) as stream:
        inline, by_event, by_header = await take(stream, 3)
    assert inline.line == line(5)
    assert by_event.line == by_header.line == big
    assert (inline.rollout_id, inline.attempt, inline.reward) == ("5-2-a1", 1, 2.5)
    assert by_header.data["pad"] == "y" * 1_000
    store.close()


async def test_a_record_that_cannot_be_read_raises_with_its_place_and_the_next_read_goes_on(kafka, topics, log):
    offset = await log.put(b"garbage", partition=2)
    await log.score(partition=2)
    async with ScoredRollouts(kafka, topics) as stream:
        with pytest.raises(DataError, match=rf"{log.topic}/2/{offset} cannot be read: the line is not JSON"):
            await stream.next(20)
        assert indices(await take(stream, 1)) == [0]
    async with ScoredRollouts(kafka, topics, on_unreadable="skip") as stream:
        assert indices(await take(stream, 1)) == [0]
        assert stream.skipped == 1


async def test_a_missing_claim_can_be_tried_again(kafka, topics, log):
    await log.put(b"", [(headers.CLAIM, b"r/5-2/line-3-00000000")])
    answers = [InfrastructureError("not there yet"), line(5)]

    async def resolve(_name):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with ScoredRollouts(kafka, topics, group="g", resolve=resolve) as stream:
        with pytest.raises(InfrastructureError):
            await stream.next(20)
        assert (await stream.commit()).offsets == {}
        assert indices(await take(stream, 1)) == [5]


async def test_open_and_aborted_transactions_are_not_seen(kafka, topics, log):
    producer = AIOKafkaProducer(**kafka.kwargs(), transactional_id=f"{topics.prefix}.x")
    await producer.start()
    async with ScoredRollouts(kafka, topics) as stream:
        await producer.begin_transaction()
        await producer.send_and_wait(log.topic, line(1), partition=0)
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send_and_wait(log.topic, line(2), partition=0)
        assert await stream.next(1) is None
        await producer.commit_transaction()
        assert indices(await take(stream, 1)) == [2]
    await producer.stop()


async def test_what_was_committed_does_not_come_again_and_what_was_not_does(kafka, topics, log):
    await log.score(9)
    async with ScoredRollouts(kafka, topics, group="g") as stream:
        first = await take(stream, 4)
        done = await stream.commit()
        assert done.lost == frozenset()
        rest = await take(stream, 5)
        assert indices(first + rest) == list(range(9))
    async with ScoredRollouts(kafka, topics, group="g") as stream:
        again = await take(stream, 5)
        assert indices(again) == indices(rest)
        assert await stream.next(0.3) is None


async def test_one_rollout_can_be_committed_without_those_after_it(kafka, topics, log):
    await log.score(4, partition=1)
    async with ScoredRollouts(kafka, topics, group="g") as stream:
        rollouts = await take(stream, 4)
        assert (await stream.commit(rollouts[1])).offsets == {1: rollouts[1].place.offset + 1}
    async with ScoredRollouts(kafka, topics, group="g") as stream:
        assert [r.task_index for r in await take(stream, 2)] == [2, 3]


async def test_nothing_is_committed_unasked(kafka, topics, log):
    await log.score(3)
    async with ScoredRollouts(kafka, topics, group="g") as stream:
        await take(stream, 3)
    assert await committed(kafka, "g", [TopicPartition(log.topic, p) for p in range(3)]) == {}


async def test_runs_are_told_apart(kafka, topics, log):
    await log.score(2, run="other")
    await log.score(2, run="mine")
    async with ScoredRollouts(kafka, topics, run="mine") as stream:
        assert indices(await take(stream, 2)) == [2, 3]
        assert await stream.next(0.3) is None


async def test_where_to_start(kafka, topics, log):
    await log.score(2, partition=0, at_ms=1_700_000_000_000)
    await log.score(2, partition=0, at_ms=1_700_000_100_000)

    async def first(start, **more):
        async with ScoredRollouts(kafka, topics, start=start, **more) as stream:
            found = await stream.next(2)
            return None if found is None else found.task_index

    assert await first("earliest") == 0
    assert await first(datetime.fromtimestamp(1_700_000_050, UTC)) == 2
    assert await first(datetime.fromtimestamp(1_700_000_200, UTC)) is None
    assert await first({0: 3}) == 3
    assert await first({0: 3}, group="g") == 3
    async with ScoredRollouts(kafka, topics, start="latest") as stream:
        assert await stream.next(0.3) is None
        await log.score(partition=0)
        assert indices(await take(stream, 1)) == [4]
    with pytest.raises(ValueError, match="no time zone"):
        ScoredRollouts(kafka, topics, start=datetime(2026, 1, 1))  # noqa: DTZ001


async def test_a_group_that_starts_at_the_end_notes_where_that_was(kafka, topics, log):
    await log.score(3)
    async with ScoredRollouts(kafka, topics, group="g", start="latest") as stream:
        await until(lambda: len(stream._held) == 3)
        await log.score(3)
        assert indices(await take(stream, 3)) == [3, 4, 5]
    async with ScoredRollouts(kafka, topics, group="g", start="latest") as stream:
        assert indices(await take(stream, 3)) == [3, 4, 5]


async def test_a_group_goes_on_where_it_was_unless_it_is_rewound(kafka, topics, log):
    await log.score(3, partition=0)
    async with ScoredRollouts(kafka, topics, group="g") as stream:
        await take(stream, 2)
        await stream.commit()
    async with ScoredRollouts(kafka, topics, group="g", start="earliest") as stream:
        assert indices(await take(stream, 1)) == [2]
    async with ScoredRollouts(kafka, topics, group="g", start={0: 1}, rewind=True) as stream:
        assert [r.task_index for r in await take(stream, 2)] == [1, 2]
        with pytest.raises(InfrastructureError, match="only while the group has no member"):
            async with ScoredRollouts(kafka, topics, group="g", rewind=True):
                pass


async def test_batches_are_full_or_late(kafka, topics, log):
    await log.score(7)
    async with ScoredRollouts(kafka, topics) as stream:
        batches = stream.batches(5, timeout_s=1.5)
        assert len(await anext(batches)) == 5
        assert len(await anext(batches)) == 2
        waiting = asyncio.ensure_future(anext(batches))
        await log.score(5)
        assert len(await waiting) == 5
        await batches.aclose()


async def test_a_second_member_takes_over_and_nothing_is_lost_or_claimed_twice(kafka, topics, log):
    await log.score(30)
    async with ScoredRollouts(kafka, topics, group="g") as one:
        mine = await take(one, 30)
        async with joined(kafka, topics, one) as two:
            # What `one` still holds it goes on with: it does not get its own rollouts again.
            await log.score(30)
            async with asyncio.timeout(30):
                ours, theirs = await asyncio.gather(drain(one), drain(two))
            done = await one.commit()
            lost = {p.place.partition for p in mine} - set(done.offsets)
            assert done.lost == lost
            assert lost
            kept = [r for r in mine if r.place.partition not in lost]
            handed_over = [r.task_index for r in mine if r.place.partition in lost]
            assert not set(indices(ours)) & set(indices(kept))
            assert set(handed_over) <= set(indices(theirs))
            assert sorted(indices(kept) + indices(ours) + indices(theirs)) == list(range(60))
            assert (await one.commit()).lost == frozenset()


async def test_a_batch_gives_up_what_was_lost_while_it_filled(kafka, topics, log):
    await log.score(9)
    async with ScoredRollouts(kafka, topics, group="g") as one:
        batches = one.batches(100, timeout_s=8)
        filling = asyncio.ensure_future(anext(batches))
        await until(lambda: len({p for p, h in one._held.items() if h.yielded}) == 3)
        two_stream = ScoredRollouts(kafka, topics, group="g")
        async with two_stream as two:
            theirs = await take(two, 1)
            batch = await filling
            held = set(one._held)
            assert {r.place.partition for r in batch} == held
            assert theirs[0].place.partition not in held
        await batches.aclose()


@asynccontextmanager
async def joined(kafka, topics, other):
    """A second member, once both have partitions: the first must keep polling to see the rebalance."""
    async with ScoredRollouts(kafka, topics, group="g") as stream:
        await until(lambda: stream._held and other._held and not set(stream._held) & set(other._held))
        yield stream


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - the group tells nobody
            await asyncio.sleep(0.02)


async def drain(stream):
    found = []
    while (rollout := await stream.next(2)) is not None:
        found.append(rollout)
    return found


async def test_no_topic_is_said(kafka, topics):
    with pytest.raises(InfrastructureError, match=r"there is no topic \S+scored-rollouts"):
        async with ScoredRollouts(kafka, topics):
            pass
