"""Results files of several machines as one (platform.md B9): found by patterns, checked against each other, merged in order.

Invariant: every rollout is in the merged file once, by (task, rollout), as the bytes of its first line; memory holds 100 bytes
of each line, never its text. Shards that number different tasks alike are refused, since their rollouts would hide each other.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from rollstream.runfiles.readers import JsonLines, Key, TornLine, key_of
from schemas import jsontext
from schemas.rows import PARAMS, ROLLOUT_INDEX, TASK_INDEX
from services.sink.disk import Disk
from services.sink.paths import RunPaths
from services.sink.stopped import stopped

_DERIVED = ("_materialized_inputs", "_failures", "_reward_profiling", "_trajectories")
"""Ends of the stems of files that lie beside results and are none (A6, G3)."""

_DIGEST_BYTES = 8
_NOTED = 20
"""Rollouts that occur twice, at most so many of which are named."""


class ShardError(ValueError):
    """The patterns or the files they name cannot be merged; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What the shards hold: rollouts, lines that came twice (their places), and lines that were torn."""

    rollouts: int
    repeated: tuple[str, ...]
    torn: tuple[TornLine, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    shard: int
    line: int
    start: int
    size: int
    request: bytes


def find_shards(patterns: Sequence[str], output: Path) -> list[Path]:
    """The results files that patterns name, each holding several by comma; sidecars and `output` itself are left out.

    Raises `ShardError` when a pattern matches nothing.
    """
    found: dict[Path, Path] = {}
    own = RunPaths.of(output).results.resolve()
    for pattern in (p.strip() for text in patterns for p in text.split(",")):
        if not pattern:
            continue
        matches = [Path(m) for m in sorted(glob.glob(os.path.expanduser(pattern), recursive=True))]  # noqa: PTH111, PTH207
        files = [m for m in matches if m.is_file()]
        if not files:
            raise ShardError(f"no file matches {pattern}")
        for path in files:
            if not path.stem.endswith(_DERIVED) and path.resolve() != own:
                found.setdefault(path.resolve(), path)
    if not found:
        raise ShardError(f"{', '.join(patterns)}: no results file; name files such as results/shard-*.jsonl")
    return list(found.values())


def merge_shards(shards: Sequence[Path], output: Path | None) -> Merged:
    """Check the shards against each other and write them as one file, when there is an `output`.

    Raises `ShardError`, `MalformedLineError` with file and line, `SinkStoppedError`, and `OSError` for a file that cannot be
    read.
    """
    places: dict[Key, _Place] = {}
    repeated: list[str] = []
    torn = [t for i, path in enumerate(shards) if (t := _read(i, path, shards, places, repeated)) is not None]
    if output is not None:
        _write(shards, [places[key] for key in sorted(places)], output)
    return Merged(len(places), tuple(repeated), tuple(torn))


def _read(shard: int, path: Path, shards: Sequence[Path], places: dict[Key, _Place], repeated: list[str]) -> TornLine | None:
    lines = JsonLines(path)
    for number, start, size, value in lines.placed():
        key = key_of(value)
        if key is None:
            raise ShardError(f"{path}:{number}: no {TASK_INDEX} and {ROLLOUT_INDEX}; is it a results file?")
        place = _Place(shard, number, start, size, _request(value))
        first = places.setdefault(key, place)
        if first is place:
            continue
        here, there = f"{path}:{number}", f"{shards[first.shard]}:{first.line}"
        if first.request != place.request:
            raise ShardError(
                f"{here} and {there} are both rollout {key[0]}:{key[1]}, of different requests: the shards were numbered "
                f"apart. Give the rows a {TASK_INDEX} of their own before they are dealt out"
            )
        if len(repeated) < _NOTED:
            repeated.append(f"{here}: rollout {key[0]}:{key[1]} is in {there} already, which counts")
    return lines.torn


def _request(line: dict[str, Any]) -> bytes:
    """Tells requests apart; attempts and repeats of one task ask the same but for their seeds."""
    params = line.get(PARAMS)
    asked = params.get("input") if isinstance(params, dict) else None
    return blake2b(jsontext.dumps(asked), digest_size=_DIGEST_BYTES).digest()


def _write(shards: Sequence[Path], places: Sequence[_Place], output: Path) -> None:
    temporary = output.with_name(f".{output.name}.tmp")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            for line in _bytes(shards, places):
                file.write(line if line.endswith(b"\n") else line + b"\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(output)
        Disk().sync_directory(output.parent)
    except OSError as e:
        temporary.unlink(missing_ok=True)
        raise stopped(e.filename or output, e) from e


def _bytes(shards: Sequence[Path], places: Sequence[_Place]) -> Iterator[bytes]:
    """The lines in order; one file at a time is open, and order mostly stays within one."""
    at, file = -1, None
    try:
        for place in places:
            if place.shard != at or file is None:
                if file is not None:
                    file.close()
                at, file = place.shard, shards[place.shard].open("rb")
            file.seek(place.start)
            yield file.read(place.size)
    finally:
        if file is not None:
            file.close()
