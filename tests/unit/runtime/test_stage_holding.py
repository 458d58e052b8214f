"""Records that a step holds back: what they cost, how they are finished together, what becomes of them when something breaks."""

import asyncio

import pytest
from unit.runtime.scripted import P0, P1, Member, World, output_of, until, virtually

from services.runtime.delivery import StopWorkerError
from services.runtime.position_codec import BITMAP_SPAN
from services.runtime.record import HELD, Outgoing, Together
from services.runtime.stage import MAX_FETCH


class Batcher:
    """Holds records back until `size` of them are here, or until the test says so (`release`)."""

    def __init__(self, size=3, work=None):
        self.size, self.work = size, work or self._copy
        self.held = {}
        self.asked, self.release, self.full, self.only_if_stuck = [], False, False, False

    def __call__(self, record):
        waiting = self.held.setdefault(record.partition, [])
        waiting.append(record)
        return self._together(record.partition) if len(waiting) >= self.size else HELD

    def forget(self, partition):
        self.held.pop(partition, None)

    def remember(self, record):
        pass

    def due(self, partition, *, caught_up, stuck):
        self.asked.append((partition, caught_up, stuck))
        wanted = self.release or self.full or (self.only_if_stuck and stuck)
        return self._together(partition) if wanted and self.held.get(partition) else None

    def _together(self, partition):
        records = self.held.pop(partition)
        self.full = False
        return Together([r.offset for r in records], lambda: self.work(records), {r.offset: r for r in records})

    async def _copy(self, records):
        await asyncio.sleep(0.01)
        return {r.offset: output_of(r) for r in records}


def member(world, step, **more):
    return Member(world, step, keeper=step, **more)


@virtually
async def test_what_is_finished_together_is_in_one_commit():
    world, step = World(), Batcher(size=3)
    world.produce(6)
    m = member(world, step)
    await m.join(P0)
    await m.read_until(lambda: len(world.outputs) == 6)
    assert all(len(values) % 3 == 0 for _, values, _ in world.commits)
    assert world.position().offset == 6
    assert not world.position().finished
    await m.kill()


@virtually
async def test_what_is_held_is_open_and_counts_neither_as_work_nor_as_waiting():
    world, step = World(), Batcher(size=5_000)
    world.produce(4_999)  # far more than a stage of ten may have in flight
    m = member(world, step, concurrency=10)
    await m.join(P0)
    await m.read_until(lambda: m.stage.held == 4_999)
    assert (m.stage.in_flight, m.stage.active, m.stage.busy) == (0, 0, 0)
    assert not world.commits
    world.produce(1)
    await m.read_until(lambda: len(world.outputs) == 5_000)
    assert m.stage.held == 0
    await m.kill()


@virtually
async def test_held_records_do_not_keep_a_drain_waiting_and_are_read_again_elsewhere():
    world, step = World(), Batcher(size=4)
    world.produce(3)
    m = member(world, step)
    await m.join(P0)
    await m.read_until(lambda: m.stage.held == 3)
    assert await m.stage.drain(60) == 0
    await m.kill()
    assert not world.commits
    other = member(world, Batcher(size=3))
    await other.join(P0)
    await other.read_until(lambda: len(world.outputs) == 3)
    await other.kill()


@virtually
async def test_an_opening_begins_afresh_with_what_is_held():
    world, step = World(), Batcher(size=4)
    world.produce(3)
    m = member(world, step)
    await m.join(P0)
    await m.read_until(lambda: m.stage.held == 3)
    await m.rebalance(P0)
    await until(lambda: m.stage.ready)
    assert (m.stage.held, step.held) == (0, {})
    world.produce(1)
    await m.read_until(lambda: len(world.outputs) == 4)
    assert sorted(world.outputs) == sorted(world.values())
    await m.kill()


@virtually
async def test_work_on_records_together_goes_on_over_a_rebalance():
    gate = asyncio.Event()

    async def slow(records):
        await gate.wait()
        return {r.offset: output_of(r) for r in records}

    world, step = World(), Batcher(size=3, work=slow)
    world.produce(3)
    m = member(world, step)
    await m.join(P0)
    await m.read_until(lambda: m.stage.active == 3)
    await m.rebalance(P0)
    await until(lambda: m.stage.ready)
    await m.read(5)
    assert (m.stage.active, m.stage.held, step.held) == (3, 0, {})
    gate.set()
    await m.read_until(lambda: len(world.outputs) == 3)
    await m.kill()


@virtually
async def test_work_of_which_another_owner_finished_a_part_is_dropped_as_a_whole():
    world, step = World(), Batcher(size=3, work=lambda _: asyncio.Event().wait())
    world.produce(3)
    m = member(world, step)
    await m.join(P0)
    await m.read_until(lambda: m.stage.active == 3)
    world.committed[P0] = (1, "")
    step.work, step.size = step._copy, 2
    await m.rebalance(P0)
    await m.read_until(lambda: len(world.outputs) == 2)
    assert world.outputs == [b"0/1", b"0/2"]
    await m.kill()


@virtually
async def test_work_that_raises_costs_each_of_its_records():
    async def broken(records):
        raise ValueError("a bad group")

    world, step = World(), Batcher(size=3, work=broken)
    world.produce(3)
    m = member(world, step, recover=lambda r, e: [Outgoing("failures", r.key, b"%d: %s" % (r.offset, repr(e).encode()))])
    await m.join(P0)
    await m.read_until(lambda: len(world.outputs) == 3)
    assert world.outputs == [b"%d: ValueError('a bad group')" % i for i in range(3)]
    assert m.stage.counters.recovered == 3
    await m.kill()


@virtually
async def test_work_that_runs_over_is_ended_and_costs_its_records():
    world, step = World(), Batcher(size=2, work=lambda _: asyncio.Event().wait())
    world.produce(2)
    m = member(world, step, work_timeout_s=5)
    await m.join(P0)
    await m.read_until(lambda: len(world.outputs) == 2)
    await m.kill()


@virtually
async def test_what_is_due_is_taken_up_within_the_bound_on_work():
    world, step = World(), Batcher(size=100)
    world.produce(8, P0)
    world.produce(8, P1)
    most = []

    async def watched(records):
        most.append(m.stage.active)
        await asyncio.sleep(1)
        return {r.offset: output_of(r) for r in records}

    step.work = watched
    m = member(world, step, concurrency=8)
    await m.join(P0, P1)
    await m.read_until(lambda: m.stage.held == 16)
    step.release = True
    await m.read_until(lambda: len(world.outputs) == 16)
    assert max(most) == 8
    await m.kill()


@virtually
async def test_a_partition_is_caught_up_when_it_is_read_and_gives_nothing():
    world, step = World(), Batcher(size=100)
    world.produce(2)
    m = member(world, step)
    await m.join(P0)
    await m.read_until(lambda: m.stage.held == 2)
    await m.read(50)  # a second
    assert not any(caught_up for _, caught_up, _ in step.asked)
    await m.read_until(lambda: step.asked[-1][1])
    step.full = True  # the stage stops reading: what comes now it has not seen
    step.due = lambda partition, *, caught_up, stuck: step.asked.append((partition, caught_up, stuck))
    await asyncio.sleep(20)
    assert not step.asked[-1][1]
    await m.kill()


@virtually
async def test_a_full_keeper_stops_reading_until_something_is_finished():
    world, step = World(), Batcher(size=10_000)
    world.produce(100)
    m = member(world, step)
    await m.join(P0)
    await m.read_until(lambda: m.stage.held == 100)
    step.full = True
    m.stage._regulate()
    assert P0 in m.source.paused
    world.produce(5)
    await m.read_until(lambda: m.stage.held == 5)
    assert len(world.outputs) == 100
    await m.kill()


@virtually
async def test_a_partition_without_room_for_more_open_offsets_asks_for_something_to_finish():
    world, step = World(), Batcher(size=10**9)
    step.only_if_stuck = True
    world.produce(BITMAP_SPAN + 1_000)
    m = member(world, step)
    await m.join(P0)
    await m.read_until(lambda: world.outputs and m.stage.held + len(world.outputs) == BITMAP_SPAN + 1_000)
    assert len(world.outputs) > BITMAP_SPAN - MAX_FETCH
    await m.kill()


@pytest.mark.parametrize("where", ["step", "due"])
@virtually
async def test_a_keeper_that_lost_what_it_held_stops_the_worker(where):
    world, step, fatal = World(), Batcher(size=10), []
    world.produce(1)

    def lost(*_, **__):
        raise StopWorkerError("gone")

    m = Member(world, lost if where == "step" else step, keeper=step, on_fatal=fatal.append)
    if where == "due":
        step.due = lost
    await m.join(P0)
    await m.read_until(lambda: fatal)
    assert "gone" in str(fatal[0])
    assert not world.outputs
    await m.kill()
