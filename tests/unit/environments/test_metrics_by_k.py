"""B11 at every k in one pass: the same keys and numbers as prefix by prefix, and time that grows with the rollouts."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.metrics import Attempt, pass_at_k_metrics
from environments.prefixes import RunningMean, deviations, passes

Tasks = list[list[Attempt]]


def mean(values: Sequence[float]) -> float:
    return min(max(math.fsum(values) / len(values), min(values)), max(values))


def deviation(values: Sequence[float]) -> float:
    middle = mean(values)
    return 0.0 if min(values) == max(values) else math.sqrt(math.fsum((v - middle) ** 2 for v in values) / (len(values) - 1))


def pass_at(values: Sequence[float], k: int) -> float:
    if not set(values) <= {0.0, 1.0}:
        return max(values[:k])
    zeros = list(values).count(0.0)
    return 1.0 if zeros < k else 1.0 - math.comb(zeros, k) / math.comb(len(values), k)


def majority(task: Sequence[Attempt], name: str) -> float:
    pairs = Counter((str(a.answer), a.scores[name]) for a in task if a.answer is not None and name in a.scores)
    return mean([score for (_, score), n in pairs.items() if n == max(pairs.values())]) if pairs else 0.0


def at_k(tasks: Tasks, name: str, k: int, runs: Sequence[float]) -> dict[str, float]:
    """B11 word for word, for one k and one score: every prefix is summed anew."""
    values = [[a.scores[name] for a in t if name in a.scores] for t in tasks]
    average = f"pass@1[avg-of-{k}]/{name}"
    by_task = {
        f"pass@{k}/{name}": [pass_at(v, k) for v in values if len(v) >= k],
        average: [mean(v[:k]) for v in values if v],
        f"majority@{k}/{name}": [majority(t[:k], name) for t in tasks],
    }
    found = {key: 100.0 * mean(v) for key, v in by_task.items() if v}
    if k > 1 and len(runs[:k]) > 1:
        found[f"{average}/std_dev_across_runs"] = deviation(runs[:k])
        found[f"{average}/std_err_across_runs"] = deviation(runs[:k]) / math.sqrt(len(runs[:k]))
    spreads = [deviation(v[:k]) for v in values if len(v[:k]) > 1]
    if spreads:
        found[f"{average}/avg_sample_std_dev"] = mean(spreads)
    return found


def prefix_by_prefix(tasks: Tasks) -> dict[str, Any]:
    found: dict[str, Any] = {}
    deepest = max(map(len, tasks), default=0)
    names = list(dict.fromkeys(n for t in tasks for a in t for n in a.scores))
    runs: dict[str, list[float]] = {}
    for name in names:
        by_run = [[t[i].scores[name] for t in tasks if i < len(t) and name in t[i].scores] for i in range(deepest)]
        runs[name] = [100.0 * mean(r) for r in by_run if r]
    for k in range(1, deepest + 1):
        for name in names:
            found |= at_k(tasks, name, k, runs[name])
    return {**found, "per_sample_aggregate": runs} if tasks else {}


SCORES = st.sampled_from([0.0, 1.0]) | st.sampled_from([0.1, 0.2, 0.3, 0.7]) | st.floats(-1e6, 1e6)
ATTEMPTS = st.builds(
    Attempt,
    st.dictionaries(st.sampled_from(["accuracy", "format", "{k}"]), SCORES, max_size=2),
    st.sampled_from(["a", "b", "c", None]),
)
BINARY = st.builds(Attempt, st.fixed_dictionaries({"accuracy": st.sampled_from([0.0, 1.0])}), st.sampled_from(["a", "b", None]))
TASKS = st.lists(st.lists(ATTEMPTS, max_size=9), max_size=5) | st.lists(st.lists(BINARY, max_size=20), max_size=5)


@settings(max_examples=300)
@given(TASKS)
def test_one_pass_agrees_with_prefix_by_prefix(tasks: Tasks) -> None:
    found = pass_at_k_metrics(tasks, answers=True, sample_std_dev=True)
    expected = prefix_by_prefix(tasks)
    assert list(found) == list(expected)  # the order of keys, too
    assert found.get("per_sample_aggregate") == expected.get("per_sample_aggregate")
    for key in set(found) - {"per_sample_aggregate"}:
        if "std" in key:
            assert found[key] == pytest.approx(expected[key], rel=1e-9, abs=1e-6)
        else:
            assert found[key] == expected[key], key


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300), min_size=1, max_size=50))
def test_a_running_mean_is_that_of_fsum_to_the_last_bit(values: list[float]) -> None:
    running = RunningMean()
    for i, value in enumerate(values):
        running.add(value)
        assert running.value() == running.value(()) == mean(values[: i + 1])
        assert running.value(values[i + 1 :]) == mean(values)


def test_a_mean_that_no_float_can_hold_is_nan_and_an_infinite_one_infinite() -> None:
    def of(*values: float) -> float:
        running = RunningMean()
        for value in values:
            running.add(value)
        return running.value()

    assert math.isnan(of())
    assert math.isnan(of(1.7e308, 1.7e308))
    assert math.isnan(of(math.inf, -math.inf))
    assert math.isnan(of(math.nan, 1.0))
    assert of(1.0, math.inf) == math.inf
    assert math.isnan(list(deviations([1e308, -1e308]))[-1])


@pytest.mark.parametrize(("zeros", "ones"), [(0, 40), (40, 0), (1, 400), (400, 1), (300, 300), (3_000, 2)])
def test_pass_at_k_of_many_rollouts_is_exact(zeros: int, ones: int) -> None:
    values = [0.0] * zeros + [1.0] * ones
    found = list(passes(values))
    for k in {1, 2, 39, 40, 200, 399, 400, 401, zeros + ones} & set(range(1, zeros + ones + 1)):
        assert found[k - 1] == pass_at(values, k)


@pytest.mark.parametrize("binary", [True, False])
def test_three_thousand_rollouts_of_a_task_take_less_than_two_seconds(binary: bool) -> None:
    """Prefix by prefix they took some twenty."""
    scores = [float(i % 3 == 0) if binary else i % 7 / 7 for i in range(3_000)]
    task = [
        Attempt({"accuracy": s, "no_answer": float(i % 5 == 0)}, None if i % 5 == 0 else str(i % 11))
        for i, s in enumerate(scores)
    ]
    began = time.process_time()
    found = pass_at_k_metrics([task], answers=True, sample_std_dev=True)
    assert time.process_time() - began < 2.0
    assert "pass@3000/accuracy" in found
