from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from multidict import CIMultiDict

from services.models.backoff import back_off, retry_after
from services.models.endpoint import RetryBudget

NOW = 1_700_000_000.0
CAP = 120.0


def asked(text, name="Retry-After"):
    return retry_after(CIMultiDict({name: text}), wall_s=NOW, cap_s=CAP)


def test_no_header_asks_nothing():
    assert retry_after({}, wall_s=NOW, cap_s=CAP) is None


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("7", 7), (" 7 ", 7), ("1.5", 1.5), ("3600", CAP), ("999999999999", CAP)]
)
def test_seconds(text, seconds):
    assert asked(text) == seconds


@pytest.mark.parametrize("text", ["", "-1", "1e3", "1_0", "nan", "inf", "soon", "٣", "0x10", "9" * 400, "Tue, 99 Foo", "\x00"])
def test_what_is_neither_is_ignored(text):
    assert asked(text) is None


def test_http_date_is_compared_with_the_clock():
    assert asked(format_datetime(datetime.fromtimestamp(NOW + 30, UTC), usegmt=True)) == 30
    assert asked(format_datetime(datetime.fromtimestamp(NOW - 30, UTC), usegmt=True)) == 0
    assert asked("Fri, 31 Dec 9999 23:59:59 GMT") == CAP
    assert asked("Tuesday, 14-Nov-23 22:13:30 GMT") == 10  # the obsolete form of RFC 850 that RFC 9110 asks to accept


def test_milliseconds_win_over_seconds():
    headers = CIMultiDict({"Retry-After": "60", "retry-after-ms": "250"})
    assert retry_after(headers, wall_s=NOW, cap_s=CAP) == 0.25


@example("0\x1f", 0.0, 1.0)  # a blank to `strip`, not to `float`
@given(st.text(max_size=60), st.floats(0, 1e10), st.floats(0.001, 1e6))
def test_whatever_the_header_says_the_wait_is_bounded(text, wall, cap):
    for name in ("Retry-After", "retry-after-ms"):
        wait = retry_after({name: text}, wall_s=wall, cap_s=cap)
        assert wait is None or 0 <= wait <= cap


@given(st.integers(-(10**7), 10**7))
def test_a_date_and_its_seconds_ask_for_the_same(delta):
    date = format_datetime(datetime.fromtimestamp(NOW + delta, UTC), usegmt=True)
    assert asked(date) == asked(str(max(delta, 0)))


@given(st.integers(1, 10**6), st.floats(0.001, 60), st.floats(0.001, 600), st.floats(0, 1), st.none() | st.floats(0, 120))
def test_back_off_stays_in_its_bounds(failures, base, cap, u, asked_s):
    budget = RetryBudget(base_s=base, cap_s=cap)
    wait = back_off(failures, asked_s, budget, lambda a, b: a + (b - a) * u)
    low, high = (0, cap) if asked_s is None else (asked_s, asked_s + base)
    assert low <= wait <= high + 1e-9


def test_the_range_of_the_jitter_doubles_up_to_the_cap():
    budget = RetryBudget(base_s=0.5, cap_s=4)
    assert [back_off(n, None, budget, lambda _a, b: b) for n in range(1, 6)] == [0.5, 1, 2, 4, 4]
    assert back_off(3, None, budget, lambda a, _b: a) == 0
