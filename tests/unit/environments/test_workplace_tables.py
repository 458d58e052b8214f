"""Tables of workplace_assistant do what the reference's data frames do, and times are read as its library reads them."""
# ruff: noqa: DTZ001 - times of the databases have no zone

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.workplace_assistant.table import BaseTable, Table, equal
from environments.workplace_assistant.times import read_time

pandas = pytest.importorskip("pandas")

NOW = 1_772_713_800.0
COLUMNS = ("id", "name", "status")
IDS = ["1", "10", "9", "3"]


def base(*, renumbers: bool) -> BaseTable:
    return BaseTable(COLUMNS, tuple({"id": i, "name": f"N{i}", "status": "Won"} for i in IDS), renumbers)


class Frame:
    """The same operations on a data frame."""

    def __init__(self, *, renumbers: bool) -> None:
        self.renumbers = renumbers
        self.df = pandas.DataFrame([dict(r) for r in base(renumbers=True).rows], dtype=object)

    def append(self, row: dict[str, Any]) -> None:
        new = pandas.DataFrame([row], dtype=object)
        self.df = pandas.concat([self.df, new], ignore_index=self.renumbers)

    def delete(self, wanted: str) -> None:
        self.df = self.df[self.df["id"] != wanted]

    def write(self, wanted: str, column: str, value: str) -> None:
        self.df = self.df.copy()
        # A label may stand twice in a calendar: rows are chosen by place.
        for place, found in enumerate(self.df["id"] == wanted):
            if found:
                self.df.iloc[place, COLUMNS.index(column)] = value

    def largest(self) -> Any:
        return self.df["id"].max()


NAMES = st.sampled_from([*IDS, "2", "99", "x"])
OPS = st.lists(
    st.tuples(st.just("append"), st.none())
    | st.tuples(st.just("delete"), NAMES)
    | st.tuples(st.just("write"), st.tuples(NAMES, st.sampled_from(COLUMNS), NAMES)),
    max_size=8,
)


def travelled(table: Table) -> Table:
    return Table(table.base, json.loads(json.dumps(table.changes())))


def apply(table: Table, frame: Frame, op: str, argument: Any) -> None:
    if op == "append":
        try:
            new = str(table.next_id())
        except ValueError:
            assert not len(frame.df) or not str(frame.largest()).isdigit()
            return
        assert new == str(int(frame.largest()) + 1)
        row = {"id": new, "name": "New", "status": "Lead"}
        table.append(row)
        frame.append(row)
    elif op == "delete":
        table.delete(table.find(argument))
        frame.delete(argument)
    else:
        wanted, column, value = argument
        table.write(table.find(wanted), column, value)
        frame.write(wanted, column, value)


@pytest.mark.parametrize("renumbers", [True, False])
@settings(max_examples=60)
@given(ops=OPS)
def test_a_table_is_a_data_frame(renumbers, ops):
    table, frame = Table(base(renumbers=renumbers)), Frame(renumbers=renumbers)
    for op, argument in ops:
        apply(table, frame, op, argument)
        table = travelled(table)
        assert [dict(r) for _, r in table.rows()] == frame.df.to_dict(orient="records")
        assert table.labels() == list(frame.df.index)


@settings(max_examples=60)
@given(OPS, OPS)
def test_tables_are_equal_when_the_frames_are(one, other):
    (a, fa), (b, fb) = ((Table(base(renumbers=True)), Frame(renumbers=True)) for _ in range(2))
    for ops, table, frame in ((one, a, fa), (other, b, fb)):
        for op, argument in ops:
            apply(table, frame, op, argument)
    lower = [f.df.assign(id=f.df["id"].str.lower(), name=f.df["name"].str.lower()) if len(f.df) else f.df for f in (fa, fb)]
    assert equal(a, b) == lower[0].equals(lower[1])
    assert equal(a, a)


def theirs(text: str) -> datetime | None:
    found = pandas.Timestamp(text)
    return None if found is pandas.NaT else found.to_pydatetime(warn=False).replace(microsecond=0)


TIMES = [
    "2023-11-30", "2023-11-30 09:00", "2023-11-30T09:00:01", "2023-11-30 09:00:00.5", "20231130", "2023/11/30", "30/11/2023",
    "11/30/2023", "11-30-2023 9am", "Nov 30, 2023", "30 November 2023 17:45", "Nov 2023", "2023-11", "2023", "2023Q4", "nan",
    "2023-11-30T09:00:00Z", "2023-11-30 09:00+02:00", " 2023-11-30 ", "2023-11-31", "2023-02-29", "2024-02-29", "2023-11-30 25:00",
    "next Friday-ish", "soon", "noon", "Friday", "a", "5", "12", "1 2 3 4", "99999-01-01", "0001-01-01", "tomorrow", "", "2023-13-01",
]  # fmt: skip


@pytest.mark.parametrize("text", TIMES)
def test_times_are_read_as_pandas_reads_them(text):
    try:
        wanted = theirs(text)
    except ValueError:
        with pytest.raises(ValueError):
            read_time(text, NOW)
        return
    found = read_time(text, NOW)
    assert (found and found.replace(microsecond=0)) == wanted


@given(st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)), st.sampled_from(["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%d %B %Y", "%m/%d/%Y %H:%M", "%b %d %Y"]))  # fmt: skip
def test_every_time_in_a_usual_form_is_read(when, form):
    text = when.strftime(form)
    assert read_time(text, NOW) == theirs(text)


@given(st.text(max_size=300) | st.integers() | st.floats() | st.booleans() | st.none() | st.lists(st.text()))
def test_whatever_a_model_writes_is_a_time_or_a_value_error(value):
    try:
        found = read_time(value, NOW)
    except ValueError:
        return
    assert found is None or isinstance(found, datetime)


def test_now_comes_from_the_clock():
    assert read_time("now", 0.0) == read_time("today", 0.0) == datetime(1970, 1, 1)
    assert read_time("10:15", 0.0) == datetime(1970, 1, 1, 10, 15)
