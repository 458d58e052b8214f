import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.models.limiter import CUT_INTERVAL_S, Limiter

SIGNALS = st.lists(st.tuples(st.booleans(), st.integers(0, 30_000), st.floats(0, 50), st.floats(0, 100)), max_size=200)


@given(st.integers(1, 20_000), SIGNALS)
def test_the_allowance_never_leaves_its_bounds(bound, signals):
    limiter, now = Limiter(bound), 0.0
    for good, in_flight, age, step in signals:
        now += step
        if good:
            before = limiter.allowance
            limiter.succeeded(in_flight)
            assert limiter.allowance >= before
        else:
            before = limiter.allowance
            cut = limiter.overloaded(in_flight, started=now - age, now=now)
            assert limiter.allowance <= (max(1, before // 2 + 1) if cut else before)
        assert 1 <= limiter.allowance <= bound


def test_many_refusals_at_once_are_one_cut():
    limiter = Limiter(1000)
    assert [limiter.overloaded(1000, started=0.0, now=20.0) for _ in range(500)].count(True) == 1
    assert limiter.allowance == 500


def test_tries_sent_before_the_cut_do_not_cut_again():
    limiter = Limiter(1000)
    limiter.overloaded(1000, started=0.0, now=20.0)
    assert not limiter.overloaded(500, started=19.0, now=30.0)
    assert limiter.overloaded(500, started=20.0 + CUT_INTERVAL_S, now=30.0)
    assert limiter.allowance == 250


def test_the_cut_halves_what_was_in_flight_not_what_was_allowed():
    limiter = Limiter(16_000)
    limiter.overloaded(100, started=0.0, now=1.0)
    assert limiter.allowance == 50


def test_a_lost_half_is_regained_in_about_sixteen_windows():
    limiter = Limiter(1000)
    limiter.overloaded(1000, started=0.0, now=1.0)
    windows = 0
    while limiter.allowance < 1000:
        for _ in range(limiter.allowance):
            limiter.succeeded(limiter.allowance)
        windows += 1
    assert 14 <= windows <= 18


def test_one_early_refusal_does_not_hold_back_a_big_run():
    limiter = Limiter(16_384)
    limiter.overloaded(1, started=0.0, now=1.0)
    assert limiter.allowance == 1
    windows = 0
    while limiter.allowance < 16_384:
        for _ in range(limiter.allowance):
            limiter.succeeded(limiter.allowance)
        windows += 1
    assert windows < 30


def test_an_unused_allowance_does_not_grow():
    limiter = Limiter(1000)
    limiter.overloaded(1000, started=0.0, now=1.0)
    for _ in range(10_000):
        limiter.succeeded(10)
    assert limiter.allowance == 500


def test_a_bound_below_one_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        Limiter(0)
