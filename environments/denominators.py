"""How many rollouts or tasks each average of platform.md B10 and B11 is over.

Invariant: a key here is a key of the statistics it belongs to, and its number is what they divided by; an average over less
than everything can therefore be told from one over all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from environments.metrics import Attempt, Cell


def of_columns(rows: Sequence[Mapping[str, Cell]]) -> dict[str, int]:
    """`mean/x` of each column to the number of rollouts that have a value there."""
    found: dict[str, int] = {}
    for row in rows:
        for name, cell in row.items():
            if cell is not None and not math.isnan(cell):
                found[f"mean/{name}"] = found.get(f"mean/{name}", 0) + 1
    return found


def of_tasks(tasks: Sequence[Sequence[Attempt]], *, answers: bool = False) -> dict[str, int]:
    """The averages over tasks (`pass@k/s`, `pass@1[avg-of-k]/s`, `majority@k/s`) to the number of tasks in each.

    pass@k passes over tasks with fewer than k values; the others take any task that has one, majority every task.
    """
    found: dict[str, int] = {}
    deepest = max((len(task) for task in tasks), default=0)
    for name in dict.fromkeys(name for task in tasks for a in task for name in a.scores):
        counts = [sum(name in a.scores for a in task) for task in tasks]
        some = sum(c > 0 for c in counts)
        for k in range(1, deepest + 1):
            enough = sum(c >= k for c in counts)
            if enough:
                found[f"pass@{k}/{name}"] = enough
            found[f"pass@1[avg-of-{k}]/{name}"] = some
            if answers:
                found[f"majority@{k}/{name}"] = len(tasks)
    return found
