"""What a `run` is asked to do, and the rows it starts from."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from environments.registry import Registry
from schemas.errors import DataError


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One `rollstream run`: where rows come from, where lines go, how often each task is tried.

    `limit` counts rows of each source before repetition; 0 takes all. `resume` goes on with the run in `output`.
    """

    output: Path
    environments: tuple[str, ...] = ()
    input: Path | None = None
    repeats: int = 1
    limit: int = 0
    resume: bool = False
    strict: bool = False


@contextmanager
def open_rows(request: RunRequest, registry: Registry) -> Iterator[tuple[BinaryIO, str, int]]:
    """The rows as (file, its name in messages, rows to take).

    Raises `DataError` for an unknown environment, `OSError` for a file that cannot be read.
    """
    if request.input is not None:
        with request.input.open("rb") as file:
            yield file, str(request.input), request.limit
    else:
        lines = [line for name in request.environments for line in _examples(registry, name, request.limit)]
        yield io.BytesIO(b"".join(lines)), ", ".join(request.environments), 0


def _examples(registry: Registry, name: str, limit: int) -> list[bytes]:
    entry = registry.entry_of(name)
    path = entry.folder / "data" / "example.jsonl"
    if not path.is_file():
        raise DataError(f"environment {name} ships no example tasks ({path}); give it rows with --input")
    with path.open("rb") as file:
        found = [line.rstrip(b"\n") + b"\n" for line in file if line.strip()]
    return list(islice(found, limit or None))
