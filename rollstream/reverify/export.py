"""What a scoring wrote into the log, as result files: a pair a run (platform.md A6).

Invariant: the lines are those that the sink writes, each rollout once; the files are made anew from the log each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from environments.registry import Registry
from rollstream.reverify.guard import UNSAFE, ReverifyError
from rollstream.reverify.readback import read_back
from rollstream.reverify.replay import LogRequest, Replayed
from rollstream.runfiles.aggregate import write_aggregate
from rollstream.runfiles.readers import JsonLines
from rollstream.runfiles.run_record import RunRecord, code_version, config_hash, read_run_record, utc_now
from schemas import headers
from schemas.identity import DEFAULT_RUN, is_id
from services.runtime.claims import ClaimStore
from services.runtime.connection import Connection
from services.runtime.record import ConsumerRecord, Outgoing, TopicPartition
from services.sink.line_files import LineFiles, Mode
from services.sink.paths import RunPaths

_AT_ONCE = 256


def check_target(output: Path, request: LogRequest, *, overwrite: bool) -> None:
    """Raises `ReverifyError` when files would be replaced that are not of this scoring, unless `overwrite`."""
    if is_file(output) and not request.wanted.run:
        raise ReverifyError(f"{output} holds one run; name it with --run, or give a directory for all runs")
    there = [output] if is_file(output) and output.exists() else sorted(output.glob("*_run.json")) if output.is_dir() else []
    for path in there:
        record = read_run_record(RunPaths.of(path).run if is_file(output) else path)
        own = record is not None and record.run_id.removeprefix(UNSAFE) == request.scoring
        if not overwrite and not (own and request.resume):
            raise ReverifyError(f"{path} exists and would be replaced: --overwrite it, or choose another --output")


def is_file(output: Path) -> bool:
    """Whether a target is the results file of one run; else it is a directory."""
    return output.suffix == ".jsonl"


async def export(
    done: Replayed, request: LogRequest, output: Path, connection: Connection, claims: ClaimStore, registry: Registry
) -> list[RunPaths]:
    """Write the scoring's lines to `output`: a results file, or a directory with one for each run; the files written.

    Raises `SinkStoppedError` when they cannot be written, `InfrastructureError` when the broker cannot be used.
    """
    target = output.with_name(UNSAFE + output.name) if done.scoring.startswith(UNSAFE) and is_file(output) else output
    files = _Files(target, done)
    try:
        await read_back(connection, done.topics, claims, files.add)
    finally:
        files.close()
    for paths in files.paths:
        arguments: dict[str, Any] = {"reverify": True, "log": request.wanted.as_json()}
        arguments |= {"verifiers": {v: {"verifier": x.name, "version": x.version} for v, x in done.verifiers.items()}}
        record = RunRecord(done.scoring, config_hash(arguments), code_version(), utc_now(), arguments=arguments)
        outcomes = {"scored": _count(paths.results), "failed": _count(paths.failures)}
        record.finished(outcomes).write(paths.run)
        write_aggregate(paths, registry)
    return files.paths


def _count(path: Path) -> int:
    return sum(1 for _ in JsonLines(path))


class _Files:
    """The files of each run that the scoring holds."""

    def __init__(self, target: Path, done: Replayed) -> None:
        self._target = target
        self._done = done
        self._files: dict[str, LineFiles] = {}
        self._waiting: dict[str, list[Outgoing]] = {}
        self.paths: list[RunPaths] = []

    def add(self, _record: ConsumerRecord, outputs: Sequence[Outgoing]) -> None:
        """Take the lines of a record."""
        for out in outputs:
            run = (headers.value(out.headers, headers.RUN) or b"").decode("utf-8", "replace")
            run = run if is_id(run) else DEFAULT_RUN  # it names a file
            waiting = self._waiting.setdefault(run, [])
            waiting.append(out)
            if len(waiting) >= _AT_ONCE:
                self._write(run)

    def close(self) -> None:
        for run in list(self._waiting):
            self._write(run)
        for files, paths in zip(self._files.values(), self.paths, strict=True):
            files.close()
            paths.checkpoint.unlink(missing_ok=True)  # nothing goes on with them

    def _write(self, run: str) -> None:
        if run not in self._files:
            paths = RunPaths.of(self._target if is_file(self._target) else self._target / f"{run}.jsonl")
            files = LineFiles(paths, run, Mode.FRESH)
            files.open()
            self._files[run] = files
            self.paths.append(paths)
        self._files[run].append(TopicPartition("", 0), self._waiting.pop(run), None)
