import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.models.breaker import Breaker, BreakerState
from services.models.endpoint import BreakerSettings

SETTINGS = BreakerSettings(failures=3, cool_down_s=1, max_cool_down_s=4)


def opened():
    breaker = Breaker(SETTINGS)
    assert [breaker.failed(t, probe=False) for t in (0.0, 0.1, 0.2)] == [False, False, True]
    return breaker


def test_failures_in_a_row_open_it_and_an_answer_between_does_not_let_them_add_up():
    breaker = Breaker(SETTINGS)
    breaker.failed(0, probe=False)
    breaker.failed(0, probe=False)
    breaker.answered()
    breaker.failed(0, probe=False)
    breaker.failed(0, probe=False)
    assert breaker.admits(0)
    assert breaker.failed(0, probe=False)
    assert not breaker.admits(0.5)


def test_after_the_cool_down_one_probe_goes_and_nobody_else():
    breaker = opened()
    assert not breaker.admits(1.1)
    assert breaker.admits(1.2)
    assert breaker.admit() is True
    assert not breaker.admits(100)


def test_the_cool_down_doubles_up_to_its_cap_and_starts_anew_after_an_answer():
    breaker, now, pauses = opened(), 0.2, []
    for _ in range(4):
        now = breaker.shut_until
        breaker.admit()
        breaker.failed(now, probe=True)
        pauses.append(breaker.shut_until - now)
    assert pauses == pytest.approx([2, 4, 4, 4])
    breaker.admit()
    assert breaker.answered()
    assert breaker.state is BreakerState.CLOSED
    for _ in range(3):
        breaker.failed(50, probe=False)
    assert breaker.shut_until == 51


def test_a_connection_lets_the_others_go_on_parole():
    breaker = opened()
    breaker.admit()
    breaker.connected()
    assert breaker.admits(2)
    assert breaker.failed(2, probe=False)
    assert breaker.shut_until == 4  # 2 s: nothing was answered, so the cool-down went on doubling


def test_late_failures_of_old_tries_are_no_news():
    breaker = opened()
    until = breaker.shut_until
    assert not breaker.failed(0.9, probe=False)
    assert breaker.shut_until == until
    breaker.admit()
    assert not breaker.failed(1.3, probe=False)
    assert breaker.state is BreakerState.PROBING


def test_an_abandoned_probe_makes_the_next_try_the_probe():
    breaker = opened()
    breaker.admit()
    breaker.abandoned()
    assert breaker.admits(1.2)
    assert breaker.admit() is True


@given(st.lists(st.tuples(st.sampled_from(["ok", "fail", "gone", "connected"]), st.floats(0, 10)), max_size=100))
def test_it_never_stays_shut_for_good_and_never_has_two_probes(events):
    breaker, now, probes, out = Breaker(SETTINGS), 0.0, 0, []
    for event, step in events:
        now += step
        if breaker.admits(now):
            out.append(breaker.admit())
            probes += out[-1]
        assert sum(out) <= 1
        if not out:
            continue
        probe = out.pop(0)
        if event == "ok":
            breaker.answered()
        elif event == "fail":
            breaker.failed(now, probe=probe)
        elif probe:
            breaker.abandoned()
        assert breaker.state is not BreakerState.PROBING or sum(out) == 1
    assert breaker.shut_until <= now + SETTINGS.max_cool_down_s
