"""One lane: what waits, what goes together, what survives a failed commit, a fence and a rebalance."""

import asyncio

import pytest
from unit.runtime.scripted import P0, World, lost_answer, output_of, record, records, until, virtually

from services.runtime import position_codec
from services.runtime.delivery import FencedError, Position
from services.runtime.lane import Lane, LaneState, Work


class Owner:
    """A lane with what it reports, and a world behind it."""

    def __init__(self, world=None, memory=None):
        self.world = world or World()
        self.finished, self.errors = [], []
        self.lane = Lane(
            P0,
            self.world.delivery(P0),
            on_commit=lambda _, n: self.finished.append(n),
            on_error=lambda _, e: self.errors.append(e),
            memory=memory,
        )

    async def open(self, epoch=1, replay=0):
        self.lane.open(await self.lane.take_over(), epoch, replay)
        return self.lane

    def take_all(self):
        taken = []
        while (found := self.lane.take()) is not None:
            taken.append(found)
        return taken

    def start_all(self):
        """Work that never ends by itself; the test finishes it."""
        for r in self.take_all():
            self.lane.run(Work((r.offset,), asyncio.ensure_future(asyncio.Event().wait()), 0.0))

    def finish(self, *offsets):
        for o in offsets:
            self.lane.finish(o, output_of(record(o)))


async def opened(*offsets, world=None):
    owner = Owner(world)
    await owner.open()
    assert owner.lane.accept(records(*offsets)) is None
    owner.start_all()
    return owner


def values(*offsets):
    return [b"0/%d" % o for o in offsets]


@virtually
async def test_records_are_taken_in_order_and_finish_in_any():
    owner = Owner()
    lane = await owner.open()
    lane.accept(records(3, 4, 7))
    assert [r.offset for r in owner.take_all()] == [3, 4, 7]
    owner.finish(7, 3)
    await until(lambda: owner.finished)
    assert owner.world.position() == Position(4, 0b1110)


@virtually
async def test_outputs_wait_for_the_commit_under_way_and_then_go_together():
    owner = await opened(0, 1, 2, 3, 4)
    owner.finish(2)
    await asyncio.sleep(0.005)  # the commit takes 0.01
    owner.finish(0, 4)
    owner.finish(1)
    assert len(owner.lane.committing) == 1
    await until(lambda: owner.lane.in_flight == 1)
    assert [v for _, v, _ in owner.world.commits] == [values(2), values(0, 4, 1)]
    assert owner.finished == [1, 3]


@virtually
async def test_a_position_never_claims_what_its_own_outputs_do_not_hold():
    owner = await opened(0, 1, 2)
    owner.finish(0)
    await asyncio.sleep(0.005)
    owner.finish(1)  # done, and not yet in a commit
    await until(lambda: owner.finished)
    assert owner.world.commits[0][2] == Position(1)


@virtually
async def test_a_failed_commit_puts_everything_back_and_the_next_opening_sends_it_once():
    world = World()
    world.commit_script.append(RuntimeError("broker away"))
    owner = await opened(0, 1, 2, world=world)
    owner.finish(0)
    await asyncio.sleep(0)
    owner.finish(1)
    await until(lambda: owner.errors)
    assert owner.lane.state is LaneState.SUSPENDED
    assert sorted(owner.lane.outbox) == [0, 1]
    await asyncio.sleep(1)
    assert not world.outputs, "only an open lane commits"
    await owner.open(epoch=2)
    owner.lane.accept(records(0, 1, 2))
    await until(lambda: owner.finished)
    assert sorted(world.outputs) == values(0, 1)
    assert not owner.take_all(), "2 is still being worked on"
    assert world.position() == Position(2)


@virtually
async def test_a_commit_whose_answer_was_lost_is_not_sent_again():
    world = World()
    world.commit_script.append(lost_answer(TimeoutError("no answer")))
    owner = await opened(0, 1, world=world)
    owner.finish(1)
    await until(lambda: owner.errors)
    await owner.open(epoch=2)
    owner.lane.accept(records(0, 1))
    owner.finish(0)
    await until(lambda: owner.finished)
    assert world.outputs == values(1, 0)
    assert world.position() == Position(2)


@virtually
async def test_work_that_ends_during_the_very_first_rebalance_is_committed():
    """Nothing was committed yet, so the position has no offset to commit at: the first delivery says where it begins."""
    owner = await opened(5, 6)
    await owner.lane.suspend(1)
    owner.finish(6)
    await owner.open(epoch=2)
    await asyncio.sleep(1)
    assert not owner.errors
    owner.lane.accept(records(5, 6))
    await until(lambda: owner.finished)
    assert owner.world.outputs == values(6)
    assert owner.world.position() == Position(5, 0b10)


@virtually
async def test_an_owner_that_was_fenced_commits_nothing():
    world = World()
    first = await opened(0, 1, world=world)
    second = Owner(world)
    await second.open()
    first.finish(0)
    await until(lambda: first.errors)
    assert isinstance(first.errors[0], FencedError)
    assert not world.outputs
    assert first.lane.state is LaneState.SUSPENDED


@virtually
async def test_opening_drops_what_another_owner_finished_and_keeps_the_rest():
    world = World()
    first = await opened(0, 1, 2, 3, world=world)
    first.finish(1)  # a result that cannot be committed: the other owner is there already
    await first.lane.suspend(0)
    second = await opened(0, 1, 2, 3, world=world)
    second.finish(0, 1)
    await until(lambda: second.finished == [2])
    work = dict(first.lane.running)
    await first.open(epoch=2)
    await asyncio.sleep(0)
    assert work[0].task.cancelled()
    assert sorted(first.lane.running) == [2, 3]
    assert not first.lane.outbox
    first.lane.accept(records(2, 3, 4))
    assert [r.offset for r in first.take_all()] == [4]
    first.finish(2, 3, 4)
    await until(lambda: first.finished)
    assert sorted(world.outputs) == values(0, 1, 2, 3, 4)


@virtually
async def test_revocation_waits_for_a_commit_under_way_but_not_for_ever():
    world = World(commit_delay_s=3.0)
    owner = await opened(0, 1, world=world)
    owner.finish(0)
    await asyncio.sleep(0)  # the commit begins
    now = asyncio.get_running_loop().time
    began = now()
    await owner.lane.suspend(5)
    assert now() - began == pytest.approx(3.0)
    assert world.outputs == values(0)
    await owner.open(epoch=2)
    owner.finish(1)
    await asyncio.sleep(0)
    began = now()
    await owner.lane.suspend(1)
    assert now() - began == pytest.approx(1.0)


@virtually
async def test_a_commit_that_hangs_is_cut_off_before_the_position_is_read():
    """Else it could come back as failed, with outputs that the position has taken in meanwhile."""
    world = World()
    world.commit_script.append(asyncio.Event().wait)
    owner = await opened(0, 1, world=world)
    owner.finish(0)
    await asyncio.sleep(0)
    await owner.lane.suspend(1)
    assert owner.lane.committing
    await owner.open(epoch=2)
    assert not owner.lane.committing
    owner.lane.accept(records(0, 1))
    await until(lambda: owner.finished)
    assert world.outputs == values(0)
    assert not owner.errors


@virtually
async def test_a_closed_lane_forgets_everything():
    owner = await opened(0, 1, 2)
    owner.lane.accept(records(3))
    tasks = [w.task for w in owner.lane.running.values()]
    owner.finish(2)
    await owner.lane.close()
    await asyncio.sleep(0.1)
    owner.finish(0)
    await asyncio.sleep(0.1)
    assert all(t.cancelled() for t in tasks[:2])
    assert not owner.world.outputs
    assert not owner.lane.queued
    assert owner.world.closed


@virtually
async def test_a_record_without_room_is_left_to_be_read_again():
    """10,000 open records in a short span, then a gap of 20,000 offsets (an aborted transaction): no bitmap, no runs."""
    owner = Owner()
    lane = await owner.open()
    assert lane.accept([record(o) for o in range(10_000)]) is None
    for r in owner.take_all():
        lane.run(Work((r.offset,), asyncio.ensure_future(asyncio.sleep(3_600)), 0.0))
    owner.finish(*range(1, 10_000, 2))
    await until(lambda: owner.finished)
    assert lane.has_room(64)
    assert lane.accept(records(10_000, 40_000, 40_001)) == 40_000
    assert not lane.has_room(64), "the next record is known, and there is no room for it"
    assert len(position_codec.encode(owner.world.position())) <= position_codec.MAX_METADATA
    owner.start_all()
    owner.finish(10_000, *range(0, 10_000, 2))
    await until(lambda: not lane.in_flight)
    assert lane.has_room(64)
    assert lane.accept(records(40_000, 40_001)) is None
    assert [r.offset for r in owner.take_all()] == [40_000, 40_001]


@virtually
async def test_kept_work_that_would_not_fit_beside_another_owners_is_dropped():
    world = World()
    span, every = 30_000, 20
    first = await opened(*range(span + 1, span + 3_001, 2), world=world)
    holes = set(range(0, span, every))
    position = Position(0, sum(1 << i for i in range(span) if i not in holes))
    world.committed[P0] = (0, position_codec.encode(position))
    first.finish(*range(span + 1, span + 1_001, 2))
    await first.lane.suspend(0)
    tasks = [w.task for w in first.lane.running.values()]
    world.commits.clear()
    world.committed[P0] = (0, position_codec.encode(position))
    await first.open(epoch=2)
    await asyncio.sleep(0)
    assert all(t.cancelled() for t in tasks)
    assert not first.lane.outbox


class Remembered:
    def __init__(self):
        self.heard = []

    def forget(self, partition):
        self.heard.append(("forget", partition))

    def remember(self, a_record):
        self.heard.append(a_record.offset)


@virtually
async def test_a_memory_hears_of_what_is_read_again_and_needs_no_work():
    world = World()
    world.committed[P0] = (100, position_codec.encode(Position(100, 0b100)))
    memory = Remembered()
    owner = Owner(world, memory)
    lane = await owner.open(replay=10)
    assert lane.read_from == 90
    lane.accept(records(90, 95, 99, 100, 101, 102, 103))
    assert memory.heard == [("forget", 0), 90, 95, 99, 102]
    assert [r.offset for r in owner.take_all()] == [100, 101, 103]


@virtually
async def test_replay_does_not_reach_below_the_log_and_an_untouched_partition_begins_at_its_beginning():
    world = World()
    owner = Owner(world)
    assert (await owner.open(replay=10)).read_from is None
    world.committed[P0] = (3, "")
    assert (await owner.open(epoch=2, replay=10)).read_from == 0
