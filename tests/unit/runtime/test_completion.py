"""Completion, case by case; `test_completion_model` has the general statement."""

import time

import pytest

from services.runtime import position_codec
from services.runtime.completion import Completion
from services.runtime.delivery import Position

FIRST = 100


def delivered(*offsets, position=None):
    completion = Completion(position or Position())
    assert all(completion.deliver(o) for o in offsets)
    return completion


def test_finished_in_order_the_base_follows():
    completion = delivered(100, 101, 102)
    completion.finish(100)
    assert completion.position() == Position(101)
    completion.finish(101)
    completion.finish(102)
    assert completion.position() == Position(103)


def test_finished_out_of_order_is_told_beyond_the_base():
    completion = delivered(100, 101, 102, 103)
    completion.finish(102)
    assert completion.position() == Position(100, 0b100)
    assert completion.position().beyond == [102]
    completion.finish(100)
    assert completion.position() == Position(101, 0b10)


def test_offsets_that_the_broker_left_out_are_finished():
    completion = delivered(100, 105, 109)
    completion.finish(100)
    assert completion.position() == Position(105, 0b1110), "106 to 108 can never come"
    completion.finish(109)
    completion.finish(105)
    assert completion.position() == Position(110)


def test_nothing_is_finished_below_the_first_record_of_a_log_that_begins_late():
    completion = delivered(7_000)
    assert completion.position() == Position(7_000)


def test_a_second_delivery_needs_no_work():
    completion = delivered(100, 101)
    completion.finish(101)
    assert not completion.deliver(100)
    assert not completion.deliver(101)
    assert completion.open_count == 1


def test_what_a_committed_position_tells_needs_no_work():
    completion = Completion(Position(100, 0b1010))
    assert [o for o in range(95, 106) if completion.deliver(o)] == [100, 102, 104, 105]


def test_results_from_before_a_rebalance_count_before_their_record_is_delivered_again():
    completion = Completion(Position(100, 0b10))
    completion.finish(100)
    completion.finish(104)
    assert completion.position() == Position(102, 0b100)
    assert [o for o in range(100, 106) if completion.deliver(o)] == [102, 103, 105]


def test_a_position_with_its_lowest_bit_set_is_read_as_what_it_says():
    assert Completion(Position(100, 0b10111)).position() == Position(103, 0b10)


def test_without_a_first_delivery_there_is_no_place_to_commit():
    completion = Completion(Position())
    assert not completion.is_placed
    assert completion.has_room(10_000)
    completion.deliver(3)
    assert completion.is_placed


@pytest.mark.parametrize("gap", [10**6, 10**9, 10**15])
def test_a_log_that_goes_on_far_away_costs_nothing(gap):
    """Retention has removed what lies between; taking each offset for itself would hold the loop for minutes."""
    completion = Completion(Position(FIRST))
    began = time.process_time()
    assert completion.has_room(1, FIRST + gap)
    assert completion.deliver(FIRST + gap)
    assert time.process_time() - began < 0.1
    assert completion.position() == Position(FIRST + gap)


def test_a_gap_too_far_behind_an_open_record_waits_for_it():
    completion = delivered(FIRST)
    far = FIRST + position_codec.MAX_SPAN + 1
    assert not completion.has_room(1, far)
    completion.finish(FIRST)
    assert completion.has_room(1, far)


def test_one_slow_record_lets_a_hundred_thousand_pass():
    completion = delivered(FIRST)
    for offset in range(FIRST + 1, FIRST + 100_001):
        assert completion.has_room(64)
        assert completion.deliver(offset)
        completion.finish(offset)
    position = completion.position()
    assert position.offset == FIRST
    metadata = position_codec.encode(position)
    assert len(metadata) < 20
    assert Completion(position_codec.decode(FIRST, metadata)).position() == position


def test_four_hundred_slow_records_let_a_million_pass():
    completion, slow = Completion(Position(0)), set()
    for offset in range(0, 1_000_000, 100):  # a stretch of 100 at a time keeps the test short
        assert completion.has_room(100)
        for o in range(offset, offset + 100):
            completion.deliver(o)
        if len(slow) < 400:
            slow.add(offset)
        completion._bits |= ((1 << 100) - 1 - (offset in slow)) << (offset - completion._base)
        completion._open -= set(range(offset, offset + 100)) - slow
    assert len(position_codec.encode(completion.position())) <= position_codec.MAX_METADATA


@pytest.mark.parametrize("every", [1, 2, 3], ids=["no gaps", "a control record each", "two each"])
def test_delivery_ends_before_the_set_could_outgrow_the_metadata_and_goes_on_when_work_is_done(every):
    """The worst pattern for run lengths: every other record is finished, none in the middle."""
    completion, offset, open_ones = Completion(Position(0)), 0, []
    while completion.has_room(1, offset):
        completion.deliver(offset)
        if offset // every % 2:
            completion.finish(offset)
        else:
            open_ones.append(offset)
        offset += every
    assert offset >= position_codec.BITMAP_SPAN - every
    assert len(position_codec.encode(completion.position())) <= position_codec.MAX_METADATA
    for o in open_ones:
        completion.finish(o)
    assert completion.has_room(64, offset)


def test_a_restart_with_a_full_set_can_be_read_again():
    """A worker dies with the set as large as it may be; whoever takes over must be able to have the open ones delivered."""
    span = position_codec.BITMAP_SPAN
    full = Position(0, sum(1 << i for i in range(1, span, 2)))
    completion = Completion(position_codec.decode(0, position_codec.encode(full)))
    assert completion.has_room(64), "nothing would ever be read, so nothing would ever be finished"
    open_ones = [o for o in range(span) if completion.deliver(o)]
    assert open_ones == list(range(0, span, 2))
    assert not completion.has_room(64)
    for o in open_ones:
        completion.finish(o)
    assert completion.position() == Position(span)


def test_a_restart_with_a_long_span_can_be_read_again():
    span = 60_000
    stuck = set(range(0, span, 50))
    full = Position(0, sum(1 << i for i in range(span) if i not in stuck))
    completion = Completion(position_codec.decode(0, position_codec.encode(full)))
    assert completion.has_room(64)
    assert [o for o in range(span) if completion.deliver(o)] == sorted(stuck)


def test_results_kept_through_another_owners_progress_may_be_too_many_to_tell():
    """The other owner left 1,500 holes; 1,500 results of ours beyond, each between holes, would not fit as well."""
    span = 30_000
    holes = set(range(0, span, 20))
    theirs = Completion(Position(0, sum(1 << i for i in range(span) if i not in holes)))
    assert theirs.can_finish([])
    assert theirs.can_finish([0, 20, span + 1])
    ours = [span + 1 + 2 * i for i in range(1_500)]
    assert not theirs.can_finish(ours)
    for o in ours:
        theirs.finish(o)
    with pytest.raises(ValueError, match="does not fit"):
        position_codec.encode(theirs.position())
