"""A stage through rebalances, fences, broken commits and lost partitions."""

import asyncio

import pytest
from structlog.testing import capture_logs
from unit.runtime.scripted import P0, P1, Member, World, lost_answer, output_of, until, virtually

from services.runtime import position_codec
from services.runtime.delivery import FencedError, Position


class Held:
    """A step whose work ends when the test says so."""

    def __init__(self):
        self.waiting = {}
        self.calls, self.cancelled = [], []

    async def __call__(self, a_record):
        self.calls.append(a_record.offset)
        self.waiting[a_record.offset] = asyncio.get_running_loop().create_future()
        try:
            await self.waiting[a_record.offset]
        except asyncio.CancelledError:
            self.cancelled.append(a_record.offset)
            raise
        return output_of(a_record)

    def end(self, *offsets):
        for o in offsets:
            self.waiting[o].set_result(None)


def values(*offsets, partition=0):
    return [b"%d/%d" % (partition, o) for o in offsets]


async def working(world, *, count=5, **more):
    """A member at work on the first `count` records."""
    world.produce(count)
    step = Held()
    member = Member(world, step, **more)
    await member.join(P0)
    await member.read_until(lambda: len(step.calls) == count)
    return member, step


@virtually
async def test_a_rebalance_that_gives_the_partition_back_keeps_its_work():
    world = World()
    member, step = await working(world)
    step.end(1)
    await until(lambda: world.outputs)
    step.end(3)
    await member.join(P0)
    await member.read(5)
    step.end(0, 2, 4)
    await member.read_until(lambda: len(world.outputs) == 5)
    assert step.calls == [0, 1, 2, 3, 4], "nothing was begun a second time"
    assert sorted(world.outputs) == values(0, 1, 2, 3, 4)
    assert world.position().offset == 5
    await member.stage.close()


@virtually
async def test_work_that_ends_between_revocation_and_assignment_waits_for_the_assignment():
    world = World()
    member, step = await working(world)
    await member.stage.revoked({P0})
    step.end(0, 1, 2)
    await asyncio.sleep(5)
    assert not world.outputs
    member.settle(P0)
    await member.read_until(lambda: len(world.outputs) == 3)
    assert sorted(world.outputs) == values(0, 1, 2)
    await member.stage.close()


@virtually
async def test_a_partition_that_went_elsewhere_costs_nothing_and_gives_nothing():
    world = World()
    member, step = await working(world)
    await member.rebalance()
    heir = Member(world, output_of)
    await heir.join(P0)
    await heir.read_until(lambda: len(world.outputs) == 5)
    assert step.cancelled == [0, 1, 2, 3, 4]
    assert member.stage.in_flight == member.stage.active == 0
    assert member.stage.counters.recovered == 0, "work that was dropped did not fail"
    assert sorted(world.outputs) == values(0, 1, 2, 3, 4)
    assert member.stage.ready, "a member without partitions is as ready as it gets"
    await member.stage.close()
    await heir.stage.close()


@virtually
async def test_only_what_nobody_finished_meanwhile_is_gone_on_with():
    """A stalled worker comes back to a partition that it never knew it had lost."""
    world = World()
    member, step = await working(world)
    heir = Member(world, lambda r: output_of(r) if r.offset < 3 else asyncio.sleep(10_000))
    await heir.join(P0)
    await heir.read_until(lambda: len(world.outputs) == 3)
    await heir.kill()
    step.end(1, 3)  # ended, and not to be committed: the fence is up
    await asyncio.sleep(1)
    await member.join(P0)
    await member.read(3)
    step.end(4)
    await member.read_until(lambda: len(world.outputs) == 5)
    assert step.cancelled == [0, 2]
    assert step.calls == [0, 1, 2, 3, 4]
    assert sorted(world.outputs) == values(0, 1, 2, 3, 4)
    await member.stage.close()


@virtually
async def test_a_fenced_lane_comes_back_only_if_the_group_still_says_so():
    world = World()
    member, step = await working(world)
    fence = world.delivery(P0)
    await fence.open()
    step.end(0)
    await until(lambda: member.stage.counters.reopened)
    opened = len(world.opened)
    await asyncio.sleep(5)
    assert len(world.opened) == opened, "whoever fenced us is the owner for now"
    await member.read_until(lambda: world.outputs, timeout_s=20)
    assert world.outputs == values(0)
    await member.stage.close()


@virtually
async def test_a_fenced_lane_that_went_elsewhere_stays_away():
    world = World()
    member, step = await working(world)
    fence = world.delivery(P0)
    await fence.open()
    step.end(0)
    await until(lambda: member.stage.counters.reopened)
    await member.rebalance()
    opened = len(world.opened)
    await asyncio.sleep(60)
    assert len(world.opened) == opened
    assert not world.outputs
    await member.stage.close()


@pytest.mark.parametrize("error", [RuntimeError("no"), TimeoutError(), OSError("reset"), FencedError("by ourselves")], ids=repr)
@pytest.mark.parametrize("reached", [False, True], ids=["refused", "answer lost"])
@virtually
async def test_a_commit_that_fails_is_neither_lost_nor_doubled(error, reached):
    world = World()
    world.commit_script.extend([lost_answer(error) if reached else error])
    world.produce(1_500)
    member = Member(world, output_of)
    await member.join(P0)
    await member.read_until(lambda: len(world.outputs) == 1_500)
    await asyncio.sleep(30)
    assert sorted(world.outputs) == sorted(world.values())
    assert member.stage.counters.reopened == 1
    await member.stage.close()


@virtually
async def test_a_broker_that_is_away_for_a_while_is_asked_again_and_again():
    world = World()
    world.open_script.extend(OSError("refused") for _ in range(8))
    world.produce(10)
    member = Member(world, output_of)
    await member.rebalance(P0)
    await asyncio.sleep(3)
    assert not member.stage.ready
    await member.read_until(lambda: len(world.outputs) == 10)
    assert world.opened == [P0]
    await member.stage.close()


@virtually
async def test_no_lane_opens_while_the_group_is_rebalancing():
    """An opening that is under way, or that a failed commit asked for, waits for the assignment: what it would read may be
    another owner's the next moment."""
    world = World()
    world.open_script.append(lambda: asyncio.sleep(30))
    member = Member(world, output_of)
    member.settle(P0)
    await asyncio.sleep(1)
    await member.stage.revoked({P0})
    await asyncio.sleep(60)
    assert not member.stage.lanes[P0].is_open
    assert not world.opened
    world.produce(10)
    world.commit_script.append(OSError("reset"))
    member.settle(P0)
    await member.read_until(lambda: member.stage.lanes[P0].committing)
    await member.stage.revoked({P0})  # the commit fails while the revocation waits for it
    await asyncio.sleep(60)
    assert not member.stage.lanes[P0].is_open
    member.settle(P0)
    await member.read_until(lambda: len(world.outputs) == 10)
    assert sorted(world.outputs) == sorted(world.values())
    await member.stage.close()


@virtually
async def test_an_assignment_ends_an_opening_that_began_under_the_last_one():
    """The slow one would open with the position of its time, and what was committed since would be done again."""
    world = World()
    world.produce(10)
    member = Member(world, output_of)
    stale = asyncio.Event()

    async def slow():
        await stale.wait()

    world.open_script.append(slow)
    member.settle(P0)
    await asyncio.sleep(1)
    await member.join(P0)
    await member.read_until(lambda: len(world.outputs) == 10)
    stale.set()
    await asyncio.sleep(1)
    world.produce(10)
    await member.read_until(lambda: len(world.outputs) == 20)
    assert sorted(world.outputs) == sorted(world.values())
    assert world.opened == [P0]
    await member.stage.close()


@virtually
async def test_letting_go_of_a_partition_ends_its_opening_first():
    """It would fence the new owner."""
    world = World()
    world.open_script.append(lambda: asyncio.sleep(5))
    member = Member(world, output_of)
    member.settle(P0)
    await asyncio.sleep(1)
    member.settle()
    heir = Member(world, output_of)
    await heir.join(P0)
    await asyncio.sleep(30)
    world.produce(10)
    await heir.read_until(lambda: len(world.outputs) == 10)
    assert heir.stage.counters.reopened == 0
    await member.stage.close()
    await heir.stage.close()


@virtually
async def test_a_batch_that_cannot_be_booked_is_read_again():
    """The consumer is past it. Going on would take its records for a gap, and gaps count as finished."""
    world = World()
    world.produce(2_000, P0)
    world.produce(2_000, P1)
    member = Member(world, output_of)
    await member.join(P0, P1)
    member.source.seek_script.append(OSError("the consumer is not well"))  # of the seek behind the first batch
    await member.read_until(lambda: len(world.outputs) == 4_000)
    assert sorted(world.outputs) == sorted(world.values())
    assert member.stage.counters.reopened == 1
    await member.stage.close()


@virtually
async def test_what_a_failed_fetch_had_taken_is_read_again():
    """aiokafka drops what it has drained from one partition when the next one's batch cannot be decoded."""
    world = World()
    world.produce(1_000, P0)
    world.produce(1_000, P1)
    member = Member(world, output_of)
    await member.join(P0, P1)
    await member.read_until(lambda: len(world.outputs) >= 500)
    await until(member.source.fetch)  # taken, and lost
    await member.stage.refetch(UnicodeDecodeError("utf-8", b"", 0, 1, ""))
    await member.read_until(lambda: len(world.outputs) == 2_000)
    assert sorted(world.outputs) == sorted(world.values())
    assert member.stage.counters.reopened == 0
    await member.stage.close()


class Ledger:
    """A memory of handled records; `raise_at` breaks it once."""

    def __init__(self, raise_at=None):
        self.known, self.raise_at, self.forgotten = set(), raise_at, 0

    def forget(self, partition):
        self.known, self.forgotten = set(), self.forgotten + 1

    def remember(self, a_record):
        if a_record.offset == self.raise_at:
            self.raise_at = None
            raise ValueError("unreadable")
        self.known.add(a_record.offset)


@virtually
async def test_a_partition_is_read_from_below_its_position_for_a_step_that_remembers():
    world = World()
    world.produce(100)
    world.committed[P0] = (50, position_codec.encode(Position(50, 0b110)))
    memory = Ledger()
    member = Member(world, output_of, replay=20, memory=memory)
    await member.join(P0)
    await member.read_until(lambda: world.position().offset == 100)
    assert memory.known == {*range(30, 50), 51, 52}
    assert memory.forgotten == 1
    assert sorted(world.outputs) == sorted(values(50, *range(53, 100)))
    await member.stage.close()


@virtually
async def test_a_memory_that_raises_loses_nothing():
    world = World()
    world.produce(100)
    world.committed[P0] = (50, "")
    member = Member(world, output_of, replay=20, memory=Ledger(raise_at=40))
    await member.join(P0)
    await member.read_until(lambda: world.position().offset == 100)
    assert sorted(world.outputs) == sorted(values(*range(50, 100)))
    await member.stage.close()


class Forgets(Ledger):
    """Notes which partitions are forgotten, in order."""

    def __init__(self):
        super().__init__()
        self.order = []

    def forget(self, partition):
        self.order.append(partition)


@virtually
async def test_a_memory_forgets_a_partition_that_went_elsewhere():
    world = World()
    world.produce(5)
    memory = Forgets()
    member = Member(world, output_of, memory=memory)
    await member.join(P0, P1)
    assert sorted(memory.order) == [0, 1]  # as they open
    memory.order.clear()
    await member.rebalance(P1)
    await until(lambda: member.stage.ready and len(world.closed) == 1)
    assert sorted(memory.order) == [0, 1]  # one opened again, one gone
    memory.order.clear()
    await member.stage.close()
    assert memory.order == [1]


@virtually
async def test_a_drop_that_ends_late_takes_nothing_from_a_partition_that_is_back():
    world = World()
    closing, may_close = [], asyncio.Event()

    def delivery(partition):
        found = world.delivery(partition)

        async def slow():
            closing.append(partition)
            await may_close.wait()

        found.close = slow
        return found

    memory = Forgets()
    member = Member(world, output_of, memory=memory, deliveries=delivery)
    await member.join(P0)
    await member.rebalance(P1)
    await until(lambda: closing == [P0])
    await member.join(P0, P1)
    memory.order.clear()  # from here on, what is known is the new lane's
    may_close.set()
    await asyncio.sleep(1)
    assert memory.order == []
    await member.stage.close()


@virtually
async def test_a_new_partition_joins_those_at_work():
    world = World()
    member, step = await working(world)
    world.produce(3, P1)
    await member.join(P0, P1)
    await member.read_until(lambda: len(step.calls) == 8)
    assert member.stage.counters.recovered == 0
    assert not step.cancelled
    await member.stage.close()


@virtually
async def test_records_that_expired_before_they_were_read_are_said_and_counted():
    world = World()
    world.committed[P0] = (2, position_codec.encode(Position(2)))
    world.produce(9)
    world.log[P0] = world.log[P0][6:]
    member = Member(world, Held())
    member.source.first_kept = 6
    with capture_logs() as logs:
        await member.join(P0)
        await until(lambda: member.stage.counters.expired)
    (said,) = [line for line in logs if line["event"] == "records expired unread"]
    assert (said["first"], said["last"], member.stage.counters.expired) == (2, 5, 4)
    await member.stage.close()
