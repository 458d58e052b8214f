"""Statistics over result lines: the basic ones of platform.md B10, and pass@k, majority@k and avg-of-k of B11.

Pure functions. Invariant: a statistic that is not defined is left out, never reported as 0, except where B10 says so.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.rows import ROLLOUT_INDEX, TASK_INDEX

Cell = float | bool | None
_PERCENT = 100.0
NO_ANSWER = "no_answer"
STATISTICS = ("std_dev_across_runs", "std_err_across_runs", "avg_sample_std_dev")
"""Suffixes that headline selection leaves out (B11)."""


def numeric_columns(result_line: Mapping[str, Any]) -> dict[str, float | None]:
    """B10's input columns of one result line: its top-level numbers but the indices, then those of `response.usage`.

    Booleans are 0 or 1; a null stays null, since it may belong to a column that other lines fill.
    """
    response = result_line.get("response")
    usage = response.get("usage") if isinstance(response, Mapping) else None
    own = {k: v for k, v in result_line.items() if k not in (TASK_INDEX, ROLLOUT_INDEX)}
    return {**_numbers(own), **_numbers(usage if isinstance(usage, Mapping) else {})}


def basic_statistics(rows: Sequence[Mapping[str, Cell]]) -> dict[str, float]:
    """`mean/x`, `max/x`, `min/x`, `median/x`, `std/x` (n - 1) of each column x over a set of rollouts (B10).

    Nulls and NaN are left out. When no column has a defined std, it is 0.0 for the columns without a null in any row.
    """
    columns = {name: [_known(row.get(name)) for row in rows] for name in _names(rows)}
    found: dict[str, float] = {}
    single = all(sum(c is not None for c in cells) < 2 for cells in columns.values())  # noqa: PLR2004 - n - 1 needs two
    for name, cells in columns.items():
        values = [c for c in cells if c is not None]
        if values:
            found |= _describe(name, values, zero_std=single and len(values) == len(rows))
    return found


@dataclass(frozen=True, slots=True)
class Attempt:
    """One rollout for B11: named scores, and the answer (None: there was none; ignored without an answer field)."""

    scores: Mapping[str, float]
    answer: Any = None


def attempts_of(
    tasks: Iterable[Sequence[Mapping[str, Any]]], scores: Mapping[str, str], answer: str | None
) -> list[list[Attempt]]:
    """Result lines by task as attempts: `scores` maps a score's name to the field it is read from.

    With an answer field there is one score more, `no_answer`.
    """
    return [[_attempt(line, scores, answer) for line in lines] for lines in tasks]


def pass_at_k_metrics(
    tasks: Sequence[Sequence[Attempt]], *, answers: bool = False, sample_std_dev: bool = False
) -> dict[str, Any]:
    """The keys of B11, in percent, for k = 1 … the most rollouts of any task; `tasks` are ordered lists of rollouts.

    `answers` says that there is an answer field, `sample_std_dev` adds the optional `avg_sample_std_dev` (raw scale).
    """
    found: dict[str, Any] = {}
    runs: dict[str, list[float]] = {}
    names = list(dict.fromkeys(name for task in tasks for a in task for name in a.scores))
    deepest = max((len(task) for task in tasks), default=0)
    for name in names:
        runs[name] = _per_run(tasks, name, deepest)
    for k in range(1, deepest + 1):
        for name in names:
            found |= _at_k(tasks, name, k, runs[name], answers=answers, sample_std_dev=sample_std_dev)
    return {**found, "per_sample_aggregate": runs} if tasks else {}


def by_subset(
    tasks: Sequence[Sequence[Mapping[str, Any]]],
    field: str,
    metrics: Callable[[Sequence[Sequence[Mapping[str, Any]]]], Mapping[str, Any]],
) -> dict[str, Any]:
    """`metrics` of the tasks with the same value of `field` in their first rollout, keys prefixed `VALUE/` (B11)."""
    groups: dict[str, list[Sequence[Mapping[str, Any]]]] = defaultdict(list)
    for lines in tasks:
        value = lines[0].get(field) if lines else None
        if value not in (None, ""):
            groups[str(value)].append(lines)
    return {
        f"{value}/{key}": found
        for value, members in groups.items()
        for key, found in metrics(members).items()
        if key != "per_sample_aggregate"
    }


def at_highest_k(found: Mapping[str, Any], pattern: str, *, without: Iterable[str] = ()) -> dict[str, Any]:
    """The entries of `pattern` (such as `pass@{k}/` or `pass@1[avg-of-{k}]/`) at its highest k.

    Entries of the three statistics are left out, and so are the scores named in `without`.
    """
    prefix, _, rest = pattern.partition("{k}")
    ks = (key.removeprefix(prefix).partition(rest)[0] for key in found if key.startswith(prefix) and rest in key)
    highest = max((int(k) for k in ks if k.isdigit()), default=None)
    if highest is None:
        return {}
    start, skipped = f"{prefix}{highest}{rest}", {*without, *STATISTICS}
    return {k: v for k, v in found.items() if k.startswith(start) and not skipped & set(k.removeprefix(start).split("/"))}


def _numbers(fields: Mapping[str, Any]) -> dict[str, float | None]:
    return {k: None if v is None else _number(v) for k, v in fields.items() if v is None or isinstance(v, int | float)}


def _number(value: float) -> float:
    """A JSON integer may be too large for a float; it stays out of sums as NaN does rather than end the aggregation."""
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _names(rows: Sequence[Mapping[str, Cell]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _known(cell: Cell) -> float | None:
    return None if cell is None or math.isnan(cell) else float(cell)


def _describe(name: str, values: Sequence[float], *, zero_std: bool) -> dict[str, float]:
    mean = _mean(values)
    found = {
        f"mean/{name}": mean,
        f"max/{name}": max(values),
        f"min/{name}": min(values),
        f"median/{name}": statistics.median(values),
    }
    if len(values) > 1:
        found[f"std/{name}"] = _std(values)
    elif zero_std:
        found[f"std/{name}"] = 0.0
    return {k: v for k, v in found.items() if math.isfinite(v)}


def _mean(values: Sequence[float]) -> float:
    """Summed without rounding error, so that the order of rollouts does not change a mean, and never outside its values."""
    try:
        return min(max(math.fsum(values) / len(values), min(values)), max(values))
    except (OverflowError, ValueError):  # beyond the largest float, or infinities of both signs
        return math.nan


def _std(values: Sequence[float]) -> float:
    """Sample standard deviation (n - 1); NaN when it lies beyond the largest float."""
    mean = _mean(values)
    if min(values) == max(values):
        return 0.0  # a rounded mean would leave a trace
    try:
        return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
    except (OverflowError, ValueError):
        return math.nan


def _attempt(line: Mapping[str, Any], scores: Mapping[str, str], answer: str | None) -> Attempt:
    given = {name: float(line[field]) for name, field in scores.items() if isinstance(line.get(field), int | float)}
    if answer is None:
        return Attempt(given)
    value = line.get(answer)
    return Attempt({**given, NO_ANSWER: float(value is None)}, value)


def _values(task: Sequence[Attempt], name: str) -> list[float]:
    return [a.scores[name] for a in task if name in a.scores]


def _per_run(tasks: Sequence[Sequence[Attempt]], name: str, deepest: int) -> list[float]:
    """Entry i: the mean of the score over the tasks that have rollout i."""
    runs = ([t[i].scores[name] for t in tasks if i < len(t) and name in t[i].scores] for i in range(deepest))
    return [_PERCENT * _mean(run) for run in runs if run]


def _at_k(
    tasks: Sequence[Sequence[Attempt]], name: str, k: int, runs: Sequence[float], *, answers: bool, sample_std_dev: bool
) -> dict[str, float]:
    values = [_values(task, name) for task in tasks]
    average = f"pass@1[avg-of-{k}]/{name}"
    found: dict[str, float] = {}
    _put(found, f"pass@{k}/{name}", [_pass_at_k(v, k) for v in values if len(v) >= k])
    _put(found, average, [_mean(v[:k]) for v in values if v])
    if answers:
        _put(found, f"majority@{k}/{name}", [_majority(task[:k], name) for task in tasks])
    if k > 1:
        found |= _spread(average, runs[:k])
    if k > 1 and sample_std_dev:
        spreads = [_std(v[:k]) for v in values if len(v[:k]) > 1]
        found |= {f"{average}/avg_sample_std_dev": _mean(spreads)} if spreads else {}
    return found


def _put(found: dict[str, float], key: str, by_task: Sequence[float]) -> None:
    if by_task:
        found[key] = _PERCENT * _mean(by_task)


def _pass_at_k(values: Sequence[float], k: int) -> float:
    """Chance that k of the values hold a 1 (unbiased estimator); the best of the first k when they are not all 0 or 1."""
    if any(v not in (0.0, 1.0) for v in values):
        return max(values[:k])
    zeros = sum(v == 0.0 for v in values)
    return 1.0 if zeros < k else 1.0 - math.comb(zeros, k) / math.comb(len(values), k)


def _majority(attempts: Sequence[Attempt], name: str) -> float:
    """Mean score over the (answer, score) pairs tied for most frequent; 0 when nobody answered."""
    pairs = Counter((_hashable(a.answer), a.scores[name]) for a in attempts if a.answer is not None and name in a.scores)
    most = max(pairs.values(), default=0)
    return _mean([score for (_, score), count in pairs.items() if count == most]) if pairs else 0.0


def _hashable(answer: Any) -> object:
    return answer if isinstance(answer, str | int | float) else repr(answer)


def _spread(average: str, runs: Sequence[float]) -> dict[str, float]:
    if len(runs) < 2:  # noqa: PLR2004 - n - 1 needs two
        return {}
    deviation = _std(runs)
    error = deviation / math.sqrt(len(runs))
    return {f"{average}/std_dev_across_runs": deviation, f"{average}/std_err_across_runs": error}
