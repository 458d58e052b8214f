"""The three mistakes that design §2 names, each put back by hand: the property that it breaks, and the real code that keeps it.

Each test runs one scenario twice, with the code as it is and with the mistake in its place.
"""

import asyncio
from collections import Counter
from functools import partial

from unit.models.virtual_loop import run as run_virtually
from unit.runtime.scripted import P0, Member, World, output_of, until

from services.runtime import position_codec
from services.runtime.completion import Completion
from services.runtime.position_codec import BITMAP_SPAN
from services.runtime.stage import Stage


def run(scenario):
    return run_virtually(scenario(), budget_s=100_000)


def faults(world):
    """Records that came out more than once, and records that never did."""
    seen = Counter(world.outputs)
    return [v for v, n in seen.items() if n > 1], [v for v in world.values() if v not in seen]


# --- (a) gaps from control records taken for records that are missing ---


async def a_log_of_transactions():
    """One control record behind every record, as transactions of one record leave them. Everything is worked on."""
    world = World(commit_delay_s=0.0)
    world.produce(30_000, gap=1)
    member = Member(world, output_of)
    await member.join(P0)
    await member.read(500)
    await member.stage.close()
    return world


def contiguous_over_numbers(completion, start, stop):
    """The mistake: an offset that was never delivered is waited for."""


def test_a_gap_in_the_numbers_is_no_missing_record(monkeypatch):
    world = run(a_log_of_transactions)
    assert faults(world) == ([], [])
    assert world.committed[P0] == (29_999 * 2 + 1, ""), "all is finished, and there is nothing beyond to remember"

    monkeypatch.setattr(Completion, "_skip", contiguous_over_numbers)
    world = run(a_log_of_transactions)
    doubled, missing = faults(world)
    assert missing, "the set beyond the first gap fills the metadata, and the partition stands still"
    assert not doubled
    assert world.position().offset == 1, "nothing will ever finish the control record at 1"


# --- (b) the completion set cut short to fit the metadata ---


async def slow_records_and_a_kill():
    """Every tenth of 30,000 records is slow, the rest is done at once: a set that no metadata can hold. The worker dies."""
    world = World(commit_delay_s=0.0)
    world.produce(30_000)

    def step(a_record):
        return asyncio.sleep(1_000) if a_record.offset % 10 == 0 else output_of(a_record)

    member = Member(world, step, concurrency=4_000, work_timeout_s=10_000)
    await member.join(P0)
    await member.read(500)
    await member.kill()
    assert len(world.outputs) > 20_000
    heir = Member(world, output_of)
    await heir.join(P0)
    await heir.read_until(lambda: world.position().offset == 30_000)
    await heir.stage.close()
    return world


def cut_to_fit(encode, position):
    """The mistake: what does not fit is left out of the metadata."""
    try:
        return encode(position)
    except ValueError:
        return encode(type(position)(position.offset, position.finished & (1 << BITMAP_SPAN) - 1))


def test_a_set_cut_short_does_work_twice(monkeypatch):
    world = run(slow_records_and_a_kill)
    assert faults(world) == ([], [])

    monkeypatch.setattr(position_codec, "encode", partial(cut_to_fit, position_codec.encode))
    monkeypatch.setattr(position_codec, "fits", lambda span, unfinished: True)  # who cuts does not ask for room
    doubled, missing = faults(run(slow_records_and_a_kill))
    assert len(doubled) > 500, "what lay beyond the cut is done again"
    assert not missing


# --- (c) a batch fetched before a rebalance booked on the newer assignment ---


async def a_batch_in_flight_through_a_rebalance():
    """A worker stalls with a fetched batch in its hands; the partition goes to another worker and comes back behind it."""
    world = World()
    world.produce(30)
    stalled = Member(world, output_of)
    await stalled.join(P0)
    await stalled.read_until(lambda: len(world.outputs) == 30)
    world.produce(30)
    in_hand = []
    while not in_hand:  # the fetch that is under way: records 30 to 59
        in_hand = stalled.source.fetch()
        await asyncio.sleep(0.001)
    world.committed[P0] = (12, "")  # the group is set back by hand, or another worker had an older position
    del world.outputs[12:]
    await stalled.rebalance(P0)
    await until(lambda: stalled.stage.lanes[P0].is_open)
    await stalled.stage.receive(in_hand)
    await stalled.read_until(lambda: world.position().offset == 60)
    await stalled.stage.close()
    return world


async def book_whatever_comes(stage, lane, batch):
    """The mistake: the batch belongs to the partition, so it is booked."""
    lane.accept(batch)


def test_a_batch_from_before_a_rebalance_is_read_again(monkeypatch):
    world = run(a_batch_in_flight_through_a_rebalance)
    assert faults(world) == ([], [])

    monkeypatch.setattr(Stage, "_book", book_whatever_comes)
    doubled, missing = faults(run(a_batch_in_flight_through_a_rebalance))
    assert missing == [b"0/%d" % o for o in range(12, 30)], "records 12 to 29 were taken for a gap: lost for good"
    assert not doubled
