from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import Outcome
from services.sink.seen import Seen

BOOKINGS = st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 3)), max_size=30)


def book(seen: Seen, result: bool, rollout: int, attempt: int) -> Outcome:
    return (seen.result if result else seen.failure)(b"%d" % rollout, attempt)


@given(BOOKINGS)
def test_one_result_a_rollout_and_one_failure_an_attempt(bookings: list[tuple[bool, int, int]]) -> None:
    seen = Seen()
    counted = [b for b in bookings if book(seen, *b) in (Outcome.SCORED, Outcome.FAILED)]
    results = [r for is_result, r, _ in counted if is_result]
    failures = [(r, a) for is_result, r, a in counted if not is_result]
    assert len(results) == len(set(results))
    assert len(failures) == len(set(failures))


@given(BOOKINGS, BOOKINGS, BOOKINGS)
def test_taking_back_leaves_no_trace(
    kept: list[tuple[bool, int, int]], dropped: list[tuple[bool, int, int]], after: list[tuple[bool, int, int]]
) -> None:
    one, other = Seen(), Seen()
    for seen in (one, other):
        for b in kept:
            book(seen, *b)
        seen.keep()
    for b in dropped:
        book(other, *b)
    other.take_back()
    assert [book(one, *b) for b in after] == [book(other, *b) for b in after]


def test_bytes_a_rollout() -> None:
    seen = Seen()
    tracemalloc.start()
    for i in range(100_000):
        seen.result(b"run/%d-0" % i, 0)
        seen.keep()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(seen) == 100_000
    assert held / 100_000 < 120
