"""Reward profile of a run (platform.md B13): how hard each task was, with its row beside its numbers.

Owns the join of materialized rows and results on (task, rollout) and the two files that come of it. Invariant: every result
has its row, no key occurs twice, and unless the run may be partial every row has its result; otherwise nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from environments.metrics import basic_statistics, numeric_columns
from rollstream.runfiles.group_metrics import Columns, completion_pct, group_metrics
from rollstream.runfiles.readers import JsonLines, Key, TornLine, key_of
from rollstream.runfiles.run_record import indented
from rollstream.runfiles.tally import agent_of
from schemas import jsontext
from schemas.rows import ROLLOUT_INDEX, TASK_INDEX
from services.sink.disk import replace_file
from services.sink.paths import RunPaths
from services.sink.stopped import stopped

_NAMED = 5
"""Keys that a message lists."""


class ProfileError(ValueError):
    """Inputs and results do not belong together; the message says where and what to do."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts of the console summary, under the names of B13. `*_rollout_rows` count rollouts, `*_input_rows` tasks."""

    expected_rollout_rows: int
    completed_rollout_rows: int
    missing_rollout_rows: int
    extra_rollout_rows: int
    reward_profile_completion_pct: float
    total_input_rows: int
    complete_input_rows: int
    partial_input_rows: int
    missing_input_rows: int


@dataclass(frozen=True, slots=True)
class Profile:
    """What came of it: the lines by task, the objects by agent, the counts, and lines that were torn."""

    tasks: tuple[dict[str, Any], ...]
    agents: tuple[dict[str, Any], ...]
    summary: Summary
    torn: tuple[TornLine, ...]


@dataclass(slots=True)
class _Inputs:
    """Rollouts asked for by task, and each task's first row without its indices."""

    keys: set[Key] = field(default_factory=set)
    expected: dict[int, int] = field(default_factory=dict)
    samples: dict[int, dict[str, Any]] = field(default_factory=dict)


def profile(inputs: Path, rollouts: Path, *, allow_partial: bool = False) -> Profile:
    """The profile of `rollouts` over the materialized rows in `inputs`.

    Raises `ProfileError` for files that do not fit, `MalformedLineError` for a broken line, `OSError` for one that cannot
    be read.
    """
    rows, results = JsonLines(inputs), JsonLines(rollouts)
    asked = _read_inputs(rows)
    by_agent: dict[str, dict[Key, Columns]] = {}
    done: dict[Key, int] = {}
    for number, line in results.numbered():
        key = _key(rollouts, number, line)
        if key not in asked.keys:
            raise ProfileError(f"{rollouts}:{number}: rollout {_shown(key)} has no row in {inputs}; are the two of one run?")
        _once(rollouts, number, key, done)
        by_agent.setdefault(agent_of(line), {})[key] = numeric_columns(line)
    missing = sorted(asked.keys - done.keys())
    if missing and not allow_partial:
        named = ", ".join(map(_shown, missing[:_NAMED])) + (", …" if len(missing) > _NAMED else "")
        raise ProfileError(
            f"{len(missing):,} of {len(asked.keys):,} rollouts in {inputs} have no result in {rollouts} ({named}); "
            "finish the run with --resume, or allow partial rollouts"
        )
    together = {key: columns for rollouts_of in by_agent.values() for key, columns in rollouts_of.items()}
    tasks = tuple(group_metrics(together, asked.expected, asked.samples))
    agents = tuple({"agent_ref": {"name": n}, **basic_statistics(list(r.values()))} for n, r in by_agent.items())
    torn = tuple(t for t in (rows.torn, results.torn) if t is not None)
    return Profile(tasks, agents, _summary(asked, done), torn)


def write_profile(found: Profile, paths: RunPaths) -> None:
    """Write the two files beside the rollouts; raises `SinkStoppedError`."""
    lines = b"".join(jsontext.dumps(task) + b"\n" for task in found.tasks)
    for path, data in ((paths.reward_profile, lines), (paths.agent_metrics, indented(found.agents))):
        try:
            replace_file(path, data)
        except OSError as e:
            raise stopped(path, e) from e


def _read_inputs(rows: JsonLines) -> _Inputs:
    asked = _Inputs()
    seen: dict[Key, int] = {}
    for number, row in rows.numbered():
        key = _key(rows.path, number, row)
        _once(rows.path, number, key, seen)
        asked.keys.add(key)
        asked.expected[key[0]] = asked.expected.get(key[0], 0) + 1
        if key[0] not in asked.samples:
            asked.samples[key[0]] = {k: v for k, v in row.items() if k not in (TASK_INDEX, ROLLOUT_INDEX)}
    return asked


def _summary(asked: _Inputs, done: Mapping[Key, int]) -> Summary:
    results: dict[int, int] = {}
    for task, _ in done:
        results[task] = results.get(task, 0) + 1
    complete = sum(results.get(task, 0) == n for task, n in asked.expected.items())
    return Summary(
        expected_rollout_rows=len(asked.keys),
        completed_rollout_rows=len(done),
        missing_rollout_rows=len(asked.keys) - len(done),
        extra_rollout_rows=0,  # a result without its row has ended the command
        reward_profile_completion_pct=completion_pct(len(done), len(asked.keys)),
        total_input_rows=len(asked.expected),
        complete_input_rows=complete,
        partial_input_rows=len(results) - complete,
        missing_input_rows=len(asked.expected) - len(results),
    )


def _key(path: Path, number: int, line: Mapping[str, Any]) -> Key:
    key = key_of(dict(line))
    if key is None:
        raise ProfileError(f"{path}:{number}: the line has no {TASK_INDEX} and {ROLLOUT_INDEX}")
    return key


def _once(path: Path, number: int, key: Key, seen: dict[Key, int]) -> None:
    first = seen.setdefault(key, number)
    if first != number:
        raise ProfileError(f"{path}:{number}: rollout {_shown(key)} occurs twice, first in line {first}")


def _shown(key: Key) -> str:
    return f"{key[0]}:{key[1]}"
