"""A stage without rebalances: bounds, flow control, deadlines, errors, drain."""

import asyncio

import pytest
from unit.runtime.scripted import P0, P1, Member, World, output_of, record, records, until, virtually

from services.runtime.delivery import StopWorkerError, UnreadablePositionError
from services.runtime.stage import MAX_FETCH


class Gauge:
    """A step that takes `seconds(offset)` and watches how many run at once."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.now = self.most = 0
        self.begun, self.ended, self.cancelled = [], [], []

    async def __call__(self, a_record):
        self.now += 1
        self.most = max(self.most, self.now)
        self.begun.append(a_record.offset)
        try:
            await asyncio.sleep(self.seconds(a_record.offset))
        except asyncio.CancelledError:
            self.cancelled.append(a_record.offset)
            raise
        finally:
            self.now -= 1
        self.ended.append(a_record.offset)
        return output_of(a_record)


@virtually
async def test_every_record_comes_out_once_whatever_order_it_ends_in():
    world = World()
    world.produce(700, P0)
    world.produce(300, P1, gap=1)
    step = Gauge(lambda o: (o * 7_919) % 101 / 100)
    member = Member(world, step, concurrency=50)
    await member.join(P0, P1)
    await member.read_until(lambda: len(world.outputs) == 1_000)
    assert sorted(world.outputs) == sorted(world.values())
    assert step.ended != sorted(step.ended)
    assert (world.position(P0).offset, world.position(P1).offset) == (700, 599)
    assert member.stage.counters.finished == 1_000
    assert member.stage.counters.delivered == 1_000
    await member.stage.close()


@pytest.mark.parametrize("concurrency", [1, 7, 64, 65, 1_000])
@virtually
async def test_the_bound_on_work_is_used_and_never_passed(concurrency):
    world = World()
    world.produce(2_000, P0)
    world.produce(2_000, P1)
    step = Gauge(lambda o: 1.0 + o % 3)
    member = Member(world, step, concurrency=concurrency)
    await member.join(P0, P1)
    await member.read_until(lambda: len(step.ended) >= 3 * concurrency)
    assert step.most == concurrency
    assert member.stage.active <= concurrency
    await member.stage.close()


@virtually
async def test_a_full_stage_stops_reading_and_goes_on_when_there_is_room():
    world = World()
    world.produce(20_000)
    gate = asyncio.Event()

    async def step(a_record):
        await gate.wait()
        return output_of(a_record)

    member = Member(world, step, concurrency=10)
    await member.join(P0)
    await member.read(200)
    assert member.source.paused == {P0}
    assert member.stage.in_flight <= 10 + 2 * MAX_FETCH
    gate.set()
    await member.read_until(lambda: len(world.outputs) == 20_000)
    await member.stage.close()


@virtually
async def test_a_broker_that_takes_nothing_stops_the_reading():
    """Synchronous steps finish at once: what waits for its commit must be bounded too."""
    world = World(commit_delay_s=1_000.0)
    world.produce(20_000)
    member = Member(world, output_of, concurrency=10)
    await member.join(P0)
    await member.read(200)
    assert member.source.paused == {P0}
    assert member.stage.in_flight <= 2 * 10 + 4 * MAX_FETCH
    await member.stage.close()


@virtually
async def test_one_slow_record_holds_up_none_behind_it_however_many():
    """The span grows past what a bitmap holds (26,176 offsets), and past what the metadata could hold if the rest were slow."""
    world = World(commit_delay_s=0.0)
    world.produce(60_000, gap=1)
    step = Gauge(lambda o: 5_000.0 if o == 0 else 0.0)
    member = Member(world, lambda r: step(r) if r.offset == 0 else output_of(r), concurrency=10, work_timeout_s=10_000)
    await member.join(P0)
    await member.read_until(lambda: len(world.outputs) == 59_999)
    assert world.position().offset == 0
    assert step.now == 1
    await member.stage.close()
    heir = Member(world, output_of)
    await heir.join(P0)
    await heir.read_until(lambda: len(world.outputs) == 60_000)
    assert sorted(world.outputs) == sorted(world.values())
    await heir.stage.close()


@virtually
async def test_partitions_take_turns():
    world = World()
    world.produce(400, P0)
    world.produce(10, P1)
    step = Gauge(lambda o: 1.0)
    order = []

    async def noted(a_record):
        order.append(a_record.partition)
        return await step(a_record)

    member = Member(world, noted, concurrency=2)
    await member.join(P0, P1)
    await member.read_until(lambda: len(world.outputs) == 40)
    assert order[:20].count(1) >= 9, "a long partition does not starve a short one"
    await member.stage.close()


# --- the gate ---


@virtually
async def test_a_closed_gate_starts_nothing_and_stops_the_reading():
    world, is_open = World(), [False]
    world.produce(10_000)
    member = Member(world, output_of, gate=lambda: is_open[0])
    await member.join(P0)
    await member.read(50)
    assert member.source.paused == {P0}
    assert not world.outputs
    is_open[0] = True
    await asyncio.sleep(0.3)  # nobody tells the stage: its clock asks again
    await member.read_until(lambda: len(world.outputs) == 10_000)
    await member.stage.close()


@virtually
async def test_the_gate_is_asked_for_every_record():
    """Admission lets in what the last measurement left room for; one record more per slice would pass the mark by 63."""
    world, room = World(), [10]
    world.produce(1_000)

    def step(a_record):
        room[0] -= 1
        return output_of(a_record)

    member = Member(world, step, gate=lambda: room[0] > 0)
    await member.join(P0)
    await member.read(50)
    assert len(world.outputs) == 10
    assert room == [0]
    room[0] = 5
    await member.read(50)
    assert len(world.outputs) == 15
    await member.stage.close()


@virtually
async def test_a_gate_closed_for_good_lets_what_runs_end():
    world = World()
    world.produce(100)
    step = Gauge(lambda o: 1.0)
    member = Member(world, step, concurrency=5)
    await member.join(P0)
    await member.read_until(lambda: step.now == 5)
    member.stage.close_gate()
    await asyncio.sleep(10)
    assert sorted(world.outputs) == sorted(world.values()[:5])
    assert member.source.paused == {P0}
    await member.stage.close()


# --- bad work ---


def raising(a_record):
    raise ValueError(a_record.offset)


async def raising_later(a_record):
    await asyncio.sleep(0.1)
    raise ValueError(a_record.offset)


async def cancelled_from_within(a_record):
    """Something it waits for was cancelled by somebody else, such as a shared download."""
    shared = asyncio.get_running_loop().create_future()
    shared.cancel()
    await shared


@pytest.mark.parametrize("bad", [raising, raising_later, cancelled_from_within], ids=lambda f: f.__name__)
@virtually
async def test_a_step_that_goes_wrong_costs_one_record(bad):
    world, errors = World(), []
    world.produce(300)

    def recover(a_record, error):
        errors.append((a_record.offset, error))
        return output_of(record(a_record.offset, value=b"failed"))

    member = Member(world, lambda r: bad(r) if r.offset == 5 else output_of(r), recover=recover)
    await member.join(P0)
    await member.read_until(lambda: len(world.outputs) == 300)
    assert [o for o, _ in errors] == [5]
    assert world.outputs.count(b"failed") == 1
    assert world.position().offset == 300
    assert member.stage.counters.recovered == 1
    await member.stage.close()


@pytest.mark.parametrize("bad", [raising, raising_later], ids=lambda f: f.__name__)
@virtually
async def test_a_failure_that_cannot_be_recorded_stops_the_worker_and_loses_nothing(bad):
    world, fatal = World(), []
    world.produce(10)

    def recover(a_record, error):
        raise TypeError("no event for it")

    member = Member(world, lambda r: bad(r) if r.offset == 5 else output_of(r), recover=recover, on_fatal=fatal.append)
    await member.join(P0)
    await member.read_until(lambda: fatal)
    assert isinstance(fatal[0], StopWorkerError)
    assert "in/0 offset 5" in str(fatal[0])
    assert await member.stage.drain(10) == 0
    await member.stage.close()
    heir = Member(world, output_of)
    await heir.join(P0)
    await heir.read_until(lambda: len(world.outputs) == 10)
    assert sorted(world.outputs) == sorted(world.values())
    await heir.stage.close()


@virtually
async def test_overdue_work_is_recovered_and_its_neighbours_are_not_touched():
    world, errors = World(), []
    world.produce(50)
    step = Gauge(lambda o: 1_000.0 if o in (3, 4) else 29.0)

    def recover(a_record, error):
        errors.append((a_record.offset, error, asyncio.get_running_loop().time() - began))
        return output_of(a_record)

    member = Member(world, step, concurrency=50, work_timeout_s=30, recover=recover)
    await member.join(P0)
    began = asyncio.get_running_loop().time()
    await member.read_until(lambda: len(world.outputs) == 50)
    assert [(o, type(e)) for o, e, _ in errors] == [(3, TimeoutError), (4, TimeoutError)]
    assert "no result within 30 s" in str(errors[0][1])
    assert all(30 <= t < 31 for *_, t in errors)
    assert step.cancelled == [3, 4]
    await member.stage.close()


# --- the end ---


@virtually
async def test_a_drain_waits_for_what_runs_and_starts_nothing_more():
    world = World()
    world.produce(100)
    step = Gauge(lambda o: 2.0)
    member = Member(world, step, concurrency=10)
    await member.join(P0)
    await member.read_until(lambda: step.now == 10)
    now = asyncio.get_running_loop().time
    began = now()
    assert await member.stage.drain(60) == 0
    assert now() - began < 3
    assert len(step.begun) == len(world.outputs) == 10
    await member.stage.close()


@virtually
async def test_a_drain_ends_at_its_deadline_and_says_how_much_is_left():
    world = World()
    world.produce(100)
    step = Gauge(lambda o: 2.0 if o % 2 else 500.0)
    member = Member(world, step, concurrency=10, work_timeout_s=1_000)
    await member.join(P0)
    await member.read_until(lambda: step.now == 10)
    assert await member.stage.drain(20) == 5
    await member.stage.close()
    await asyncio.sleep(0)
    assert sorted(step.cancelled) == [0, 2, 4, 6, 8]
    heir = Member(world, output_of)
    await heir.join(P0)
    await heir.read_until(lambda: len(world.outputs) == 100)
    assert sorted(world.outputs) == sorted(world.values())
    await heir.stage.close()


@virtually
async def test_a_drain_can_be_hurried():
    world = World()
    world.produce(10)
    member = Member(world, Gauge(lambda o: 50.0))
    await member.join(P0)
    await member.read_until(lambda: member.stage.active == 10)
    now = asyncio.get_running_loop().time
    began = now()
    asyncio.get_running_loop().call_later(1.0, member.stage.hurry)
    assert await member.stage.drain(60) == 10
    assert now() - began == pytest.approx(1.0)
    await member.stage.close()


@virtually
async def test_a_drain_does_not_wait_for_a_partition_that_was_lost():
    world = World()
    world.produce(10)
    member = Member(world, Gauge(lambda o: 50.0))
    await member.join(P0)
    await member.read_until(lambda: member.stage.active == 10)
    now = asyncio.get_running_loop().time
    began = now()
    draining = asyncio.ensure_future(member.stage.drain(60))
    await asyncio.sleep(1)
    await member.rebalance()
    assert await draining == 0
    assert now() - began < 2
    await member.stage.close()


@virtually
async def test_a_drain_with_nothing_to_do_is_over_at_once():
    member = Member(World(), output_of)
    assert await member.stage.drain(60) == 0
    await member.stage.close()


@virtually
async def test_nothing_is_assigned_to_a_closed_stage():
    world = World()
    member = Member(world, output_of)
    await member.join(P0)
    await member.stage.close()
    member.settle(P0, P1)  # the group was faster than our leaving
    await asyncio.sleep(1)
    assert world.opened == [P0]
    assert len(world.closed) == 1


@virtually
async def test_closing_gives_up_an_opening_and_lets_go_after_it():
    """An opening that went on after the close would fence the next owner."""
    world = World()
    world.open_script.append(lambda: asyncio.sleep(30))
    member = Member(world, output_of)
    member.settle(P0)
    await asyncio.sleep(1)
    await member.stage.close()
    await asyncio.sleep(60)
    assert not world.opened
    assert len(world.closed) == 1


# --- errors that end the worker ---


@virtually
async def test_a_position_that_cannot_be_read_stops_the_worker():
    world, fatal = World(), []
    world.produce(10)
    world.committed[P0] = (3, "backup")
    member = Member(world, output_of, on_fatal=fatal.append)
    await member.rebalance(P0)
    await until(lambda: fatal)
    await member.read(20)
    assert isinstance(fatal[0], UnreadablePositionError)
    assert not world.outputs
    assert not member.stage.ready
    assert await member.stage.drain(5) == 0
    await member.stage.close()


@virtually
async def test_a_commit_that_says_stop_stops_the_worker():
    world, fatal = World(), []
    world.produce(10)
    world.commit_script.append(StopWorkerError("disk full"))
    member = Member(world, output_of, on_fatal=fatal.append)
    await member.join(P0)
    await member.read_until(lambda: fatal)
    await member.read(20)
    assert str(fatal[0]) == "disk full"
    assert not world.outputs
    await member.stage.close()


@virtually
async def test_a_batch_for_nobody_is_let_go():
    member = Member(World(), output_of)
    await member.stage.receive(records(1, 2, 3))
    assert member.stage.in_flight == 0
    await member.stage.close()
