"""The event loop answers while heavy and light environments are verified beside each other at full speed."""

from __future__ import annotations

import itertools

import pytest
import uvloop

from benchmarks import heavy


@pytest.mark.alone
def test_the_lag_stays_under_fifty_milliseconds_beside_math_with_code(monkeypatch):
    """The better of two runs, as in `test_loop_lag`."""
    answers = {"instruction_following": heavy.ANSWER, "math_with_code": "We compute. " * 190 + "\\boxed{154}"}
    made = heavy.trajectories

    def mixed(count):
        kinds = []
        for environment, answer in answers.items():
            monkeypatch.setattr(heavy, "ENVIRONMENT", environment)
            monkeypatch.setattr(heavy, "ANSWER", answer)
            kinds.append(made(count // 2))
        return list(itertools.chain.from_iterable(zip(*kinds, strict=True)))

    monkeypatch.setattr(heavy, "trajectories", mixed)
    found = uvloop.run(heavy.measure(500))
    if found["p99_ms"] >= 50:
        found = uvloop.run(heavy.measure(500))
    assert found["p99_ms"] < 50
