"""Questions by number, for rows that carry only a `task_idx`.

Invariant: a file is read once in a process; rows of it are never changed.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from schemas.errors import DataError

_VALIDATION_EVERY = 5
"""Of GSM8k's training rows every fifth is for validation (aviary.md)."""


def question(path: str, kind: str, split: str, index: int) -> tuple[str, Any]:
    """Question and answer number `index` of a JSONL file with `question` and `answer`; raises `DataError` without one."""
    rows = _rows(path, kind, split)
    if not 0 <= index < len(rows):
        raise DataError(f"row.task_idx is {index}, and {path} has {len(rows)} questions in its split {split!r}")
    return rows[index]


def target_of(answer: Any) -> float:
    """GSM8k's answer as a number: what follows `#### ` in a worked solution, without commas; raises `DataError`."""
    text = str(answer).rpartition("#### ")[2].replace(",", "").strip()
    try:
        return float(text)
    except ValueError:
        raise DataError(f"the answer {str(answer)[-80:]!r} holds no number behind `#### `") from None


@lru_cache(maxsize=8)
def _rows(path: str, kind: str, split: str) -> tuple[tuple[str, Any], ...]:
    try:
        lines = Path(path).read_text("utf-8").splitlines()
        rows = [(str(r["question"]), r["answer"]) for r in map(json.loads, lines)]
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise DataError(f"the questions in {path} (config `dataset`) cannot be read: {e!r}") from e
    if kind != "gsm8k":
        return tuple(rows)
    validation = split == "val"
    return tuple(r for i, r in enumerate(rows) if (i % _VALIDATION_EVERY == 0) is validation)
