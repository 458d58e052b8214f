"""B10 and B11 of platform.md: the golden numbers, and agreement with naive formulations."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.metrics import (
    Attempt,
    at_highest_k,
    attempts_of,
    basic_statistics,
    by_subset,
    numeric_columns,
    pass_at_k_metrics,
)


def close(value: float) -> Any:
    return pytest.approx(value, rel=1e-9, abs=1e-9)


def test_b10_golden_rewards_by_task() -> None:
    tasks = {0: [1, 1], 1: [0, 1], 2: [0]}
    overall = basic_statistics([{"reward": r} for rewards in tasks.values() for r in rewards])
    assert overall["mean/reward"] == close(0.6)
    assert overall["median/reward"] == 1.0
    assert overall["std/reward"] == close(0.5477225575051662)
    by_task = {t: basic_statistics([{"reward": r} for r in rewards]) for t, rewards in tasks.items()}
    assert by_task[1]["mean/reward"] == 0.5
    assert by_task[1]["std/reward"] == close(0.7071067811865476)
    assert by_task[2]["std/reward"] == 0.0
    assert by_task[0]["std/reward"] == 0.0


def test_b10_golden_column_that_one_row_lacks() -> None:
    found = basic_statistics([{"reward": 1, "x": 3}, {"reward": 0}])
    assert found["mean/reward"] == 0.5
    assert found["std/reward"] == close(0.7071067811865476)
    assert {found[f"{s}/x"] for s in ("mean", "max", "min", "median")} == {3.0}
    assert "std/x" not in found


def test_b10_odd_cells() -> None:
    assert basic_statistics([]) == {}
    assert basic_statistics([{"a": None, "b": math.nan}]) == {}
    assert basic_statistics([{"a": True, "b": None}])["std/a"] == 0.0
    split = basic_statistics([{"a": 1, "b": None}, {"a": None, "b": 2}])
    assert "std/a" not in split
    assert "std/b" not in split
    assert "mean/x" not in basic_statistics([{"x": math.inf}])
    assert set(basic_statistics([{"x": 1.7e308}, {"x": 1.7e308}])) >= {"max/x", "min/x"}


def test_b10_columns() -> None:
    line = {
        "_ng_task_index": 4,
        "_ng_rollout_index": 5,
        "reward": 1.0,
        "right": True,
        "gone": None,
        "text": "x",
        "list": [1],
        "object": {"a": 1},
        "huge": 10**400,
        "response": {"usage": {"input_tokens": 7, "output_tokens": None, "input_tokens_details": {"cached_tokens": 1}}},
    }
    found = numeric_columns(line)
    assert math.isnan(found.pop("huge") or 0)
    assert found == {"reward": 1.0, "right": 1.0, "gone": None, "input_tokens": 7.0, "output_tokens": None}
    assert numeric_columns({"response": None}) == {"response": None}
    assert numeric_columns({"response": {"usage": None}}) == {}


CELLS = st.none() | st.just(math.nan) | st.booleans() | st.floats(-1e6, 1e6) | st.integers(-5, 5)
ROWS = st.lists(st.dictionaries(st.sampled_from("abc"), CELLS), max_size=8)


@given(ROWS)
def test_b10_agrees_with_a_naive_formulation(rows: list[dict[str, Any]]) -> None:
    found = basic_statistics(rows)
    expected: dict[str, float] = {}
    columns = {n: [float(r[n]) for r in rows if r.get(n) is not None and not math.isnan(r[n])] for n in "abc"}
    any_std = any(len(v) > 1 for v in columns.values())
    for name, values in columns.items():
        if not values:
            continue
        expected |= {f"max/{name}": max(values), f"min/{name}": min(values), f"median/{name}": statistics.median(values)}
        expected[f"mean/{name}"] = statistics.fmean(values)
        if len(values) > 1:
            expected[f"std/{name}"] = statistics.stdev(values)
        elif not any_std and len(values) == len(rows):
            expected[f"std/{name}"] = 0.0
    assert found == {k: pytest.approx(v, rel=1e-9, abs=1e-9) for k, v in expected.items()}


@given(ROWS, st.randoms())
def test_b10_does_not_depend_on_the_order_of_rows(rows: list[dict[str, Any]], random: Any) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert basic_statistics(shuffled) == pytest.approx(basic_statistics(rows), rel=1e-12)


def lines(*tasks: Sequence[tuple[float, str | None]]) -> list[list[dict[str, Any]]]:
    return [[{"reward": r, "extracted_answer": a} for r, a in task] for task in tasks]


def metrics(
    tasks: Sequence[Sequence[dict[str, Any]]], answer: str | None = "extracted_answer", **options: Any
) -> dict[str, Any]:
    return pass_at_k_metrics(attempts_of(tasks, {"accuracy": "reward"}, answer), answers=answer is not None, **options)


GOLDEN_1 = lines(
    [(1, "7"), (0, "8"), (1, "7"), (0, None)],
    [(0, "x"), (0, "x"), (0, "y"), (0, "y")],
    [(1, "b"), (1, "b"), (1, "b"), (0, "c")],
)


def test_b11_golden_1() -> None:
    found = metrics(GOLDEN_1, sample_std_dev=True)
    table = {
        1: (41.6667, 66.6667, 66.6667, 8.3333),
        2: (61.1111, 50.0, 50.0, 16.6667),
        3: (66.6667, 55.5556, 66.6667, 25.0),
        4: (66.6667, 41.6667, 66.6667, 33.3333),
    }
    for k, row in table.items():
        names = (f"pass@{k}/accuracy", f"pass@1[avg-of-{k}]/accuracy", f"majority@{k}/accuracy", f"pass@{k}/no_answer")
        assert [found[n] for n in names] == pytest.approx(list(row), abs=5e-5)
        assert found[f"majority@{k}/no_answer"] == 0
    runs = found["per_sample_aggregate"]
    assert runs["accuracy"] == pytest.approx([66.6667, 33.3333, 66.6667, 0], abs=5e-5)
    assert runs["no_answer"] == pytest.approx([0, 0, 0, 33.3333], abs=5e-5)
    spread = {2: (23.5702, 16.6667, 0.235702), 3: (19.2450, 11.1111, 0.192450), 4: (31.9142, 15.9571, 0.359117)}
    for k, (deviation, error, sample) in spread.items():
        key = f"pass@1[avg-of-{k}]/accuracy"
        assert found[f"{key}/std_dev_across_runs"] == pytest.approx(deviation, abs=5e-5)
        assert found[f"{key}/std_err_across_runs"] == pytest.approx(error, abs=5e-5)
        assert found[f"{key}/avg_sample_std_dev"] == pytest.approx(sample, abs=5e-7)
    assert found["pass@1[avg-of-4]/no_answer"] == pytest.approx(8.3333, abs=5e-5)
    assert found["pass@1[avg-of-4]/no_answer/std_dev_across_runs"] == pytest.approx(16.6667, abs=5e-5)
    assert found["pass@1[avg-of-4]/no_answer/std_err_across_runs"] == pytest.approx(8.3333, abs=5e-5)


def test_b11_golden_2_continuous_and_ragged() -> None:
    found = metrics([[{"reward": r} for r in (0.2, 0.9, 0.4)], [{"reward": 0.5}]], answer=None)
    assert [found[f"pass@{k}/accuracy"] for k in (1, 2, 3)] == pytest.approx([35, 90, 90])
    assert [found[f"pass@1[avg-of-{k}]/accuracy"] for k in (1, 2, 3)] == pytest.approx([35, 52.5, 50])
    assert found["per_sample_aggregate"]["accuracy"] == pytest.approx([35, 90, 40])
    assert found["pass@1[avg-of-2]/accuracy/std_dev_across_runs"] == pytest.approx(38.8909, abs=5e-5)
    assert found["pass@1[avg-of-3]/accuracy/std_dev_across_runs"] == pytest.approx(30.4138, abs=5e-5)
    assert not any("majority" in k or "no_answer" in k or "avg_sample" in k for k in found)


def test_b11_golden_3_ties() -> None:
    assert metrics(lines([(1, "a"), (0, "b")]))["majority@2/accuracy"] == close(50)
    assert metrics(lines([(1, "a"), (0, "a"), (1, "b")]))["majority@3/accuracy"] == pytest.approx(66.6667, abs=5e-5)


def test_b11_nothing_and_nobody() -> None:
    assert metrics([]) == {}
    assert metrics(lines([(0, None)], [(0, None)]))["majority@1/accuracy"] == 0
    assert metrics([[{"reward": True, "extracted_answer": ["a", 1]}]])["majority@1/accuracy"] == 100


def test_b11_headline_at_the_highest_k() -> None:
    found = metrics(GOLDEN_1, sample_std_dev=True)
    assert set(at_highest_k(found, "pass@1[avg-of-{k}]/")) == {"pass@1[avg-of-4]/accuracy", "pass@1[avg-of-4]/no_answer"}
    assert set(at_highest_k(found, "pass@{k}/", without=["accuracy"])) == {"pass@4/no_answer"}
    assert at_highest_k(found, "majority@{k}/", without=["no_answer"]) == {"majority@4/accuracy": found["majority@4/accuracy"]}
    assert at_highest_k({}, "pass@{k}/") == {}


def test_b11_subsets_group_tasks_by_their_first_rollout() -> None:
    tasks = [
        [{"reward": 1.0, "topic": "law"}, {"reward": 0.0, "topic": "art"}],
        [{"reward": 0.0, "topic": "law"}],
        [{"reward": 1.0, "topic": ""}],
        [{"reward": 1.0}],
    ]
    found = by_subset(tasks, "topic", lambda members: metrics(members, answer=None))
    assert found["law/pass@1/accuracy"] == close(25)
    assert {k.partition("/")[0] for k in found} == {"law"}
    assert not any("per_sample_aggregate" in k for k in found)


BINARY = st.lists(
    st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.sampled_from(["a", "b", None])), min_size=1, max_size=5),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60)
@given(BINARY)
def test_b11_binary_scores_agree_with_naive_formulations(tasks: list[list[tuple[float, str | None]]]) -> None:
    found = metrics(lines(*tasks))
    for k in range(1, max(map(len, tasks)) + 1):
        # pass@k is the share of all ways to draw k rollouts in which one succeeds.
        draws = [[max(d) for d in itertools.combinations([r for r, _ in t], k)] for t in tasks if len(t) >= k]
        assert found[f"pass@{k}/accuracy"] == close(100 * statistics.fmean(statistics.fmean(d) for d in draws))
        assert found[f"pass@1[avg-of-{k}]/accuracy"] == close(
            100 * statistics.fmean(statistics.fmean(r for r, _ in t[:k]) for t in tasks)
        )
        majority = []
        for t in tasks:
            pairs = [p for p in t[:k] if p[1] is not None]
            tied = {p for p in pairs if pairs.count(p) == max(map(pairs.count, pairs))}
            majority.append(statistics.fmean(r for r, _ in tied) if tied else 0.0)
        assert found[f"majority@{k}/accuracy"] == close(100 * statistics.fmean(majority))


@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=5), min_size=1, max_size=4))
def test_b11_continuous_scores_keep_their_bounds(tasks: list[list[float]]) -> None:
    found = pass_at_k_metrics([[Attempt({"accuracy": v}) for v in t] for t in tasks])
    for k in range(1, max(map(len, tasks)) + 1):
        assert 0 <= found[f"pass@1[avg-of-{k}]/accuracy"] <= 100 + 1e-9
        assert 0 <= found[f"pass@{k}/accuracy"] <= 100 + 1e-9
