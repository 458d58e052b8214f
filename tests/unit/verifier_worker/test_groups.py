"""Who belongs to a group, and when it is closed."""

import asyncio
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.runtime.scripted import P0

from schemas.errors import Outcome
from services.runtime.record import HELD, ConsumerRecord, Together
from services.runtime.shelf import Shelf
from services.verifier_worker.groups import _REMEMBERED, Arrival, GroupBounds, Groups, Why

KEY = ("r", "t")


def made(offset, at_s=0.0, value=b"value", partition=0):
    return ConsumerRecord(P0.topic, partition, offset, int(at_s * 1000), 0, b"key", value, None, 3, 5, ())


class Bench:
    def __init__(self, **bounds):
        self.now, self.cancelled, self.scored = 1_000.0, set(), []
        self.offsets = itertools.count()
        self.shelf = Shelf(bounds.pop("memory_bytes", 1 << 20), bounds.pop("disk_bytes", 0))
        bounds = GroupBounds(timeout_s=60.0, **bounds)
        self.groups = Groups(bounds, self.shelf, self.score, self.cancelled.__contains__, lambda: self.now)

    async def score(self, closed):
        self.scored.append(closed)
        return {}

    def come(self, index, *, size=3, attempt=0, key=KEY, absent="", at_s=0.0, partition=0):
        offset = next(self.offsets)
        return self.groups.add(made(offset, at_s, partition=partition), Arrival(key, index, attempt, size, absent))

    def close(self, together):
        assert isinstance(together, Together)
        asyncio.run(together.work())
        return self.scored.pop()

    def due(self, partition=0, *, caught_up=False, stuck=False):
        found = self.groups.due(partition, caught_up=caught_up, stuck=stuck)
        return None if found is None else self.close(found)


def offsets(records):
    return [r.offset for r in records]


@pytest.fixture
def bench():
    return Bench()


def test_a_group_is_complete_with_its_last_member_in_whatever_order(bench):
    assert bench.come(2) is HELD
    assert bench.come(0) is HELD
    together = bench.come(1)
    assert list(together.offsets) == sorted(together.records) == [0, 1, 2]
    closed = bench.close(together)
    assert (closed.why, closed.size, offsets(closed.present), closed.unknown, closed.absent) == (
        Why.COMPLETE,
        3,
        [0, 1, 2],
        0,
        {},
    )
    assert (bench.groups.count, bench.shelf.memory) == (0, 0)


def test_a_group_of_one_waits_for_nobody(bench):
    assert bench.close(bench.come(0, size=1)).size == 1


def test_a_member_that_never_comes_completes_the_group_when_that_is_known(bench):
    bench.come(0)
    bench.come(1, absent="failed in the agent stage (model)")
    together = bench.come(2)
    assert list(together.offsets) == [0, 1, 2]
    assert sorted(together.records) == [0, 2]
    closed = bench.close(together)
    assert (offsets(closed.present), closed.absent, closed.unknown) == ([0, 2], {1: "failed in the agent stage (model)"}, 0)


def test_a_group_of_which_nobody_comes_is_closed_without_a_word(bench):
    bench.come(0, size=2, absent="x")
    together = bench.come(1, size=2, absent="x")
    assert (list(together.offsets), together.records) == ([0, 1], {})


def test_groups_of_other_tasks_and_runs_are_others(bench):
    for key in (("r", "t"), ("r", "u"), ("s", "t")):
        assert bench.come(0, size=2, key=key) is HELD
    assert bench.groups.count == 3
    assert offsets(bench.close(bench.come(1, size=2, key=("r", "u"))).present) == [1, 3]


def test_a_duplicate_is_told_and_neither_waits_nor_counts(bench):
    bench.come(0)
    assert bench.come(0) is Outcome.DUPLICATE
    bench.come(1)
    bench.close(bench.come(2))
    assert bench.come(2) is Outcome.DUPLICATE, "also when its group is closed"
    assert bench.groups.count == 0


def test_a_later_attempt_takes_the_place_of_an_earlier_one(bench):
    bench.come(0)
    bench.come(1)
    assert bench.come(1, attempt=2) is HELD
    assert bench.come(1, attempt=1) is Outcome.SUPERSEDED
    together = bench.come(2)
    assert list(together.offsets) == [0, 1, 2, 4]
    closed = bench.close(together)
    assert (offsets(closed.present), offsets(closed.superseded)) == ([0, 2, 4], [1])


def test_an_attempt_after_an_absence_takes_its_place(bench):
    bench.come(0, size=2, absent="failed")
    assert bench.come(0, size=2, attempt=1) is HELD
    closed = bench.close(bench.come(1, size=2))
    assert (offsets(closed.present), closed.absent) == ([1, 2], {})


def test_what_comes_after_the_deadline_is_a_group_of_those_that_are_left(bench):
    bench.come(0, size=4)
    bench.come(1, size=4)
    bench.now += 61
    first = bench.due(caught_up=True)
    assert (offsets(first.present), first.unknown, first.before) == ([0, 1], 2, 0)
    assert bench.come(2, size=4) is HELD
    late = bench.close(bench.come(3, size=4))
    assert (offsets(late.present), late.size, late.before, late.unknown) == ([2, 3], 4, 2, 0)


def test_a_group_without_scores_may_come_again(bench):
    bench.come(0, size=2)
    closed = bench.close(bench.come(1, size=2))
    bench.groups.closed_badly(closed)
    assert bench.come(0, size=2) is HELD
    assert bench.close(bench.come(1, size=2)).before == 0


def test_the_deadline_counts_from_when_the_first_member_was_written(bench):
    bench.come(0, at_s=990.0)
    bench.now = 1_049.0
    assert bench.due(caught_up=True) is None
    bench.now = 1_050.0
    assert bench.due(caught_up=True).why is Why.DEADLINE


def test_a_deadline_that_passed_while_the_worker_was_away_waits_for_what_the_log_holds(bench):
    bench.now = 50_000.0
    bench.come(0, at_s=1_000.0)
    assert bench.due() is None
    bench.come(0, key=("r", "u"), at_s=1_059.0)
    assert bench.due() is None
    bench.groups.remember(made(99, 1_061.0))
    closed = bench.due()
    assert (closed.key, closed.why) == (KEY, Why.DEADLINE)
    assert bench.due() is None
    assert bench.due(caught_up=True).key == ("r", "u")


def test_cancelled_runs_wait_for_nothing(bench):
    bench.come(0)
    bench.come(0, key=("s", "t"))
    bench.cancelled.add("s")
    closed = bench.due()
    assert (closed.key, closed.why) == (("s", "t"), Why.CANCELLED)
    assert bench.due() is None


def test_a_partition_that_is_stuck_closes_its_oldest_group(bench):
    for task in "abc":
        bench.come(0, key=("r", task))
    bench.come(0, key=("r", "d"), partition=1)
    assert bench.due(stuck=True).key == ("r", "a")
    assert bench.due(1, stuck=True).key == ("r", "d")


@pytest.mark.parametrize("bounds", [{"max_groups": 5}, {"memory_bytes": 5_000}])
def test_beyond_its_bounds_the_oldest_group_is_closed(bounds):
    bench = Bench(**bounds)
    for task in range(5):
        bench.come(0, key=("r", str(task)))
    assert bench.groups.full
    closed = bench.due()
    assert (closed.key, closed.why) == (("r", "0"), Why.ROOM)
    assert not bench.groups.full
    assert bench.due() is None


def test_what_is_forgotten_may_come_again_as_if_for_the_first_time(bench):
    bench.come(0, size=2)
    bench.come(0, size=2, partition=1)
    bench.close(bench.come(1, size=2))
    bench.groups.forget(0)
    assert bench.groups.count == 1
    for index in (0, 1):
        answer = bench.come(index, size=2)
    assert bench.close(answer).before == 0
    bench.groups.forget(1)
    assert (bench.groups.count, bench.shelf.memory) == (0, 0)


def test_closed_groups_are_not_remembered_for_ever(bench):
    for task in range(_REMEMBERED + 10):
        bench.come(0, size=1, key=("r", str(task)))
    assert len(bench.groups._closed) == _REMEMBERED


arrivals = st.tuples(
    st.integers(0, 3),
    st.integers(0, 4),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from(["come", "come", "come", "time", "stuck"]),
)


@settings(max_examples=300)
@given(st.lists(arrivals, max_size=60), st.integers(1, 4))
def test_every_offset_is_finished_once_and_no_rollout_is_scored_twice_at_one_attempt(events, size):
    bench = Bench()
    finished, counted = [], []
    rollouts = {}

    def take(together):
        finished.extend(together.offsets)
        closed = bench.close(together)
        assert set(offsets([*closed.present, *closed.superseded])) == set(together.records)
        assert len(closed.present) + len(closed.absent) + closed.unknown + closed.before >= closed.size
        counted.extend(rollouts[o] for o in offsets(closed.present))

    for task, index, attempt, absent, what in events:
        if what == "come":
            key = ("r", str(task))
            answer = bench.come(index, size=size, attempt=attempt, key=key, absent="x" if absent else "")
            offset = next(bench.offsets) - 1
            bench.offsets = itertools.count(offset + 1)
            rollouts[offset] = (key, index, attempt)
            if isinstance(answer, Outcome):
                finished.append(offset)
            elif isinstance(answer, Together):
                take(answer)
        else:
            bench.now += 61 if what == "time" else 0
            found = bench.groups.due(0, caught_up=True, stuck=what == "stuck")
            if found is not None:
                take(found)
    while (found := bench.groups.due(0, caught_up=False, stuck=True)) is not None:
        take(found)
    assert sorted(finished) == sorted(rollouts)
    assert len(counted) == len(set(counted))
    assert bench.shelf.memory == 0
