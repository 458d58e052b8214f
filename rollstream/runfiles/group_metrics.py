"""One object for each task: the basic statistics over its rollouts, and which rollouts those are (platform.md B12, B13).

Pure functions. Invariant: keys and their order are those of `group_level_metrics` and of the lines of
`STEM_reward_profiling.jsonl`, which differ in `sample` alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from environments.metrics import basic_statistics
from rollstream.runfiles.readers import Key
from schemas.rows import AGENT_REF, ROLLOUT_INDEX, TASK_INDEX

Columns = Mapping[str, float | None]
"""B10's input columns of one rollout."""

NO_SAMPLE: Mapping[str, Any] = {AGENT_REF: {"name": "agent"}}
"""What stands in the place of the row where rows are not at hand (B12)."""

_WHOLE_LIMIT = 2.0**53
"""Beyond this a float no longer tells one whole number from the next."""


def rollout_id(task: int, rollout: int) -> str:
    """The display form of a rollout's identity, `TASK:ROLLOUT` (A8)."""
    return f"{task}:{rollout}"


def by_task(rollouts: Mapping[Key, Columns]) -> dict[int, dict[int, Columns]]:
    """Rollouts by task, both in order."""
    found: dict[int, dict[int, Columns]] = {}
    for task, rollout in sorted(rollouts):
        found.setdefault(task, {})[rollout] = rollouts[task, rollout]
    return found


def group_metrics(
    rollouts: Mapping[Key, Columns], expected: Mapping[int, int], samples: Mapping[int, Mapping[str, Any]] | None = None
) -> Iterator[dict[str, Any]]:
    """The objects of the tasks that have a rollout, in order of task.

    `expected` says how many rollouts of a task were asked for (those there are, where it is silent), `samples` what row
    a task is.
    """
    for task, members in by_task(rollouts).items():
        sample = NO_SAMPLE if samples is None else samples[task]
        yield _group(task, members, max(expected.get(task, 0), len(members)), sample)


def completion_pct(completed: int, expected: int) -> float:
    """Rollouts that there are, in percent of those asked for; 100 when nothing was."""
    return 100.0 * completed / expected if expected else 100.0


def _group(task: int, members: Mapping[int, Columns], expected: int, sample: Mapping[str, Any]) -> dict[str, Any]:
    return {
        TASK_INDEX: task,
        **basic_statistics(list(members.values())),
        "sample": dict(sample),
        "num_rollouts": len(members),
        "expected_num_rollouts": expected,
        "missing_num_rollouts": expected - len(members),
        "reward_profile_completion_pct": completion_pct(len(members), expected),
        "rollout_infos": [_info(task, i, columns) for i, columns in members.items()],
    }


def _info(task: int, rollout: int, columns: Columns) -> dict[str, Any]:
    numbers = dict(_known(columns.items()))
    reward = {"reward": numbers.pop("reward")} if "reward" in numbers else {}
    return {"rollout_id": rollout_id(task, rollout), TASK_INDEX: task, ROLLOUT_INDEX: rollout, **reward, **numbers}


def _known(cells: Iterable[tuple[str, float | None]]) -> Iterator[tuple[str, float]]:
    for name, cell in cells:
        if cell is not None and math.isfinite(cell):
            yield name, int(cell) if cell.is_integer() and abs(cell) < _WHOLE_LIMIT and name != "reward" else cell
