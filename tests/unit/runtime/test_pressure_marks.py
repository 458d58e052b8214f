"""Admission between its two marks, and what counts as open. Measuring on a broker is tested elsewhere."""

from hypothesis import given
from hypothesis import strategies as st

from services.runtime.connection import Connection
from services.runtime.delivery import Position
from services.runtime.pressure import Marks, Pressure, open_records


def between(high, low):
    return Pressure(Connection("nowhere:9092"), {}, {}, Marks(high, low))


def test_admission_stops_at_the_high_mark_and_goes_on_at_the_low_one():
    pressure = between(100, 40)
    said = []
    for found in (0, 99, 100, 99, 60, 41, 40, 60, 99, 150, 41, 39):
        pressure._judge(found)
        said.append(pressure.may_admit())
    assert said == [True, True, False, False, False, False, True, True, True, False, False, True]


def test_between_two_measurements_only_the_room_that_was_left_is_given_away():
    pressure = between(100, 40)
    pressure._judge(90)
    pressure.admitted(9)
    assert pressure.may_admit()
    pressure.admitted(1)
    assert not pressure.may_admit()
    pressure._judge(95)
    assert pressure.may_admit(), "closed is what the mark says, full is what the room says"


def test_before_the_first_measurement_the_high_mark_is_the_room():
    pressure = between(3, 1)
    pressure.admitted(2)
    assert pressure.may_admit()
    pressure.admitted(1)
    assert not pressure.may_admit()


@given(st.integers(1, 1_000), st.data())
def test_the_marks_are_kept_for_any_course(high, data):
    low = data.draw(st.integers(0, high - 1))
    pressure, closed = between(high, low), False
    for found in data.draw(st.lists(st.integers(0, 2 * high), max_size=50)):
        pressure._judge(found)
        closed = found > low if closed else found >= high
        assert pressure.may_admit() == (not closed and found < high)


def test_records_finished_beyond_the_position_are_not_open():
    assert open_records(Position(10, 0b1011), 20) == 7
    assert open_records(Position(10), 10) == 0
    assert open_records(Position(), 1_000) == 0, "nobody has ever read it"
    assert open_records(Position(15), 12) == 0, "the log was cut behind the group"
