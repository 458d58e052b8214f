"""Statistics over result lines: the basic ones of platform.md B10, and pass@k, majority@k and avg-of-k of B11.

Pure functions. Invariant: a statistic that is not defined is left out, never reported as 0, except where B10 says so.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from environments.prefixes import deviations, majorities, mean_by_k, means, passes
from schemas.rows import ROLLOUT_INDEX, TASK_INDEX

Cell = float | bool | None
_PERCENT = 100.0
NO_ANSWER = "no_answer"
_AVERAGE = "pass@1[avg-of-"
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


@dataclass(frozen=True, slots=True)
class _Column:
    """A statistic at each k: entry k - 1 belongs to the key `{before}{k}{after}`; None where it is not defined."""

    before: str
    after: str
    values: Sequence[float | None]


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
    columns: list[_Column] = []
    for name in names:
        runs[name] = _per_run(tasks, name, deepest)
        columns += _columns(tasks, name, runs[name], deepest, answers=answers, sample_std_dev=sample_std_dev)
    for k in range(1, deepest + 1):
        found |= {f"{c.before}{k}{c.after}": v for c in columns if (v := c.values[k - 1]) is not None}
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


def headline(found: Mapping[str, Any], patterns: Iterable[str], subsets: Iterable[str] = ()) -> dict[str, Any]:
    """The entries that `patterns` choose.

    `pass@{k}/accuracy`: the entry at the highest k. `{subset}/…`: the same for each of `subsets`. Without `{k}`, `*` stands for
    anything (`mean/*_tokens`).
    """
    values = list(subsets)
    chosen: dict[str, Any] = {}
    for pattern in patterns:
        for each in [pattern.replace("{subset}", value) for value in values] if "{subset}" in pattern else [pattern]:
            start, k, score = each.partition("{k}")
            if not k:
                chosen |= {key: v for key, v in found.items() if fnmatchcase(key, each)}
                continue
            end, _, name = score.partition("/")
            chosen |= {key: v for key, v in at_highest_k(found, f"{start}{{k}}{end}/").items() if key.endswith(f"/{name}")}
    return chosen


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


def _per_run(tasks: Sequence[Sequence[Attempt]], name: str, deepest: int) -> list[float]:
    """Entry i: the mean of the score over the tasks that have rollout i."""
    runs: list[list[float]] = [[] for _ in range(deepest)]
    for task in tasks:
        for run, attempt in zip(runs, task, strict=False):
            if name in attempt.scores:
                run.append(attempt.scores[name])
    return [_PERCENT * _mean(run) for run in runs if run]


def _columns(
    tasks: Sequence[Sequence[Attempt]], name: str, runs: Sequence[float], deepest: int, *, answers: bool, sample_std_dev: bool
) -> Iterator[_Column]:
    """The statistics of one score over k = 1 … `deepest`."""
    values = [[a.scores[name] for a in task if name in a.scores] for task in tasks]
    average = f"]/{name}"
    yield _Column("pass@", f"/{name}", _percent(mean_by_k(map(passes, values), deepest, hold=False)))
    yield _Column(_AVERAGE, average, _percent(mean_by_k(map(means, values), deepest, hold=True)))
    if answers:
        majority = (majorities(_ballot(a, name) for a in task) if task else (0.0,) for task in tasks)
        yield _Column("majority@", f"/{name}", _percent(mean_by_k(majority, deepest, hold=True)))
    spread = [(d, n) for n, d in enumerate(deviations(runs), start=1)]
    spread += spread[-1:] * (deepest - len(runs))  # runs in which nobody has this score are not among them
    yield _Column(_AVERAGE, f"{average}/std_dev_across_runs", [d if n > 1 else None for d, n in spread])
    yield _Column(_AVERAGE, f"{average}/std_err_across_runs", [d / math.sqrt(n) if n > 1 else None for d, n in spread])
    if sample_std_dev:
        several = (deviations(v) for v in values if len(v) > 1)
        yield _Column(_AVERAGE, f"{average}/avg_sample_std_dev", [None, *mean_by_k(several, deepest, hold=True)[1:]])


def _percent(column: Iterable[float | None]) -> list[float | None]:
    return [None if v is None else _PERCENT * v for v in column]


def _ballot(attempt: Attempt, name: str) -> tuple[Hashable, float] | None:
    if attempt.answer is None or name not in attempt.scores:
        return None
    return _hashable(attempt.answer), attempt.scores[name]


def _hashable(answer: Any) -> Hashable:
    return answer if isinstance(answer, str | int | float) else repr(answer)
