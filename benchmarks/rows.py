"""Rows for the benchmarks: the shipped example tasks, over and over."""

from __future__ import annotations

import json
from itertools import cycle, islice
from pathlib import Path

ENVIRONMENTS = Path(__file__).parent.parent / "environments"


def rows(environment: str, count: int) -> list[bytes]:
    """`count` rows of an environment as compact JSON, each with a task index of its own."""
    examples = [json.loads(line) for line in (ENVIRONMENTS / environment / "data" / "example.jsonl").open()]
    numbered = ({**row, "_ng_task_index": i} for i, row in enumerate(islice(cycle(examples), count)))
    return [json.dumps(r, separators=(",", ":"), ensure_ascii=False).encode() for r in numbered]
