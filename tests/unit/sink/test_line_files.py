from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from services.runtime.record import TopicPartition
from services.sink.disk import Disk
from services.sink.line_files import LineFiles, Mode
from services.sink.paths import RunPaths
from services.sink.step import SinkStep
from services.sink.stopped import SinkStoppedError

SCORED = "rollstream.scored-rollouts"
TP = TopicPartition(SCORED, 0)


async def no_claims(*_: Any) -> bytes:
    raise AssertionError


STEP = SinkStep(SCORED, no_claims, no_claims)


def files(folder: Path, mode: Mode = Mode.CONTINUE, disk: Disk | None = None, run_id: str = "r") -> LineFiles:
    found = LineFiles(RunPaths.of(folder / "out.jsonl"), run_id, mode, disk)
    found.open()
    return found


def add(to: LineFiles, *records: Any) -> None:
    for r in records:
        to.append(TopicPartition(r.topic, r.partition), STEP(r), r.offset + 1)  # type: ignore[arg-type]


def results(folder: Path) -> list[tuple[int, int]]:
    lines = [json.loads(x) for x in (folder / "out.jsonl").read_bytes().splitlines()]
    return [(x["_ng_task_index"], x.get("_ng_attempt_index", 0)) for x in lines]


def failures(folder: Path) -> list[tuple[str, int | None]]:
    lines = [json.loads(x) for x in (folder / "out_failures.jsonl").read_bytes().splitlines()]
    return [(x["outcome"], x.get("_ng_task_index")) for x in lines]


def test_names_of_the_files() -> None:
    paths = RunPaths.of("dir/a.b.jsonl")
    assert [p.name for p in (paths.failures, paths.materialized, paths.aggregate, paths.run, paths.checkpoint)] == [
        "a.b_failures.jsonl",
        "a.b_materialized_inputs.jsonl",
        "a.b_aggregate_metrics.json",
        "a.b_run.json",
        "a.b.checkpoint.json",
    ]
    assert RunPaths.of("dir/a").results == Path("dir/a.jsonl")


def test_a_rollout_is_written_once_across_restarts(tmp_path: Path, make: Any) -> None:
    first = files(tmp_path)
    add(first, make.scored(0, 1), make.scored(1, 1))
    first.checkpoint()
    first.close()
    second = files(tmp_path)
    add(second, make.scored(2, 1), make.scored(3, 2))
    second.close()
    assert results(tmp_path) == [(1, 0), (2, 0)]
    assert failures(tmp_path) == [("duplicate", 1), ("duplicate", 1)]


def test_attempts(tmp_path: Path, make: Any) -> None:
    """A later attempt of a failed rollout counts; what comes of an attempt that was given up does not."""
    f = files(tmp_path)
    add(f, make.failed(0, make.event(task=1, attempt=0)), make.scored(0, 1, attempt=1), make.scored(1, 1, attempt=0))
    add(f, make.failed(1, make.event(task=2, attempt=1)), make.scored(2, 2, attempt=0), make.scored(3, 2, attempt=2))
    add(f, make.failed(2, make.event(task=2, attempt=1)), make.failed(3, make.event(task=2, attempt=0)))
    f.close()
    assert results(tmp_path) == [(1, 1), (2, 2)]
    assert failures(tmp_path) == [
        ("failed", 1),
        ("superseded", 1),
        ("failed", 2),
        ("superseded", 2),
        ("duplicate", 2),
        ("superseded", 2),
    ]


def test_a_record_kept_and_not_counted_does_not_block_another_attempt(tmp_path: Path, make: Any) -> None:
    f = files(tmp_path)
    add(f, make.scored(0, 1), make.scored(1, 1, note="second"))
    f.close()
    kept = json.loads((tmp_path / "out_failures.jsonl").read_bytes())
    assert kept["note"] == "second"
    assert kept["_ng_failure_class"] == "data"
    assert "_ng_failure_terminal" not in kept


def test_what_was_written_after_the_checkpoint_is_cut_off(tmp_path: Path, make: Any) -> None:
    first = files(tmp_path)
    add(first, make.scored(0, 1))
    first.checkpoint()
    add(first, make.scored(1, 2))
    first.close()
    assert results(tmp_path) == [(1, 0), (2, 0)]
    second = files(tmp_path)
    assert second.offset(TP) == 1
    assert results(tmp_path) == [(1, 0)]
    second.close()


def test_files_without_a_checkpoint_need_a_decision(tmp_path: Path, make: Any) -> None:
    (tmp_path / "out.jsonl").write_bytes(make.scored(0, 1).value + b"\n" + b'{"torn')
    with pytest.raises(SinkStoppedError, match=r"no out\.checkpoint\.json .*resume to keep its lines, or overwrite"):
        files(tmp_path)
    resumed = files(tmp_path, Mode.RESUME)
    assert results(tmp_path) == [(1, 0)]
    assert resumed.offset(TP) is None
    resumed.close()
    files(tmp_path, Mode.FRESH).close()
    assert results(tmp_path) == []


def test_fresh_leaves_nothing_of_the_former_run(tmp_path: Path, make: Any) -> None:
    for name in (
        "out.jsonl",
        "out_failures.jsonl",
        "out_aggregate_metrics.json",
        "out_agent_metrics.json",
        "out_materialized_inputs.jsonl",
    ):
        (tmp_path / name).write_bytes(b"{}\n")
    files(tmp_path, Mode.FRESH).close()
    left = {p.name: p.stat().st_size for p in tmp_path.iterdir()}
    assert left.pop("out.checkpoint.json") > 0
    assert left == {"out.jsonl": 0, "out_failures.jsonl": 0, "out_materialized_inputs.jsonl": 3}


def test_one_writer(tmp_path: Path) -> None:
    first = files(tmp_path)
    with pytest.raises(SinkStoppedError, match=r"another process is writing .*out\.jsonl; .*directory"):
        files(tmp_path)
    first.close()
    files(tmp_path).close()


def test_another_run_or_changed_files_are_refused(tmp_path: Path, make: Any) -> None:
    f = files(tmp_path)
    add(f, make.scored(0, 1))
    f.checkpoint()
    f.close()
    with pytest.raises(SinkStoppedError, match="holds run 'r', not 'other'"):
        files(tmp_path, run_id="other")
    (tmp_path / "out.jsonl").write_bytes(b"")
    with pytest.raises(SinkStoppedError, match=r"has 0 bytes, but out.checkpoint.json recorded"):
        files(tmp_path)
    (tmp_path / "out.checkpoint.json").write_bytes(b'{"format": 99}')
    with pytest.raises(SinkStoppedError, match="format 99"):
        files(tmp_path)


class FullDisk(Disk):
    """Takes `room` bytes, then none, as /dev/full does."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if not self.room:
            with Path("/dev/full").open("wb", buffering=0) as full:
                return full.write(data) or 0
        taken = super().write(fd, data[: self.room])
        self.room -= taken
        return taken


@pytest.mark.parametrize("room", [300, 301, 420, 430])
def test_a_full_disk_stops_with_whole_lines_and_can_be_resumed(tmp_path: Path, make: Any, room: int) -> None:
    disk = FullDisk(room)
    f = files(tmp_path, disk=disk)
    endless = [make.scored(n, n // 2) for n in range(100)]
    with pytest.raises(
        SinkStoppedError, match=rf"cannot write {tmp_path}/out.*\.jsonl: No space left on device; free some space"
    ):
        add(f, *endless)
    whole = results(tmp_path)
    assert all(b.endswith(b"\n") or not b for b in (p.read_bytes() for p in tmp_path.glob("out*.jsonl")))
    assert f.offset(TP) == len(whole) + len(failures(tmp_path))
    disk.room = 1 << 30
    start = f.offset(TP) or 0
    add(f, *[make.scored(n, n // 2) for n in range(start, 8)])
    f.close()
    assert results(tmp_path) == [(i, 0) for i in range(4)]
    assert failures(tmp_path) == [("duplicate", i) for i in range(4)]


def test_a_real_file_size_limit(tmp_path: Path) -> None:
    """The kernel itself refuses (RLIMIT_FSIZE), in a process of its own."""
    program = f"""
        import resource, signal, sys
        from pathlib import Path
        from services.runtime.record import Outgoing, TopicPartition
        from services.sink.line_files import LineFiles
        from services.sink.paths import RunPaths
        from services.sink.stopped import SinkStoppedError
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        files = LineFiles(RunPaths.of(Path({str(tmp_path)!r}) / "out.jsonl"), "r")
        files.open()
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            for i in range(100):
                files.append(TopicPartition("t", 0), [Outgoing("results", b"r/%d-0" % i, b'{{"n":%d}}' % i + b" " * 30)], i + 1)
        except SinkStoppedError as e:
            files.checkpoint()
            print(e)
    """
    said = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True, timeout=30
    ).stdout
    assert "File too large; raise the file size limit" in said
    data = (tmp_path / "out.jsonl").read_bytes()
    assert data.endswith(b"\n")
    assert 900 < len(data) <= 1000
    checkpoint = json.loads((tmp_path / "out.checkpoint.json").read_bytes())
    assert checkpoint["results_bytes"] == len(data)
    assert checkpoint["offsets"] == {"t": {"0": data.count(b"\n")}}


def test_a_checkpoint_that_cannot_be_written_leaves_the_former(tmp_path: Path, make: Any) -> None:
    class NoRename(Disk):
        on = False

        def replace(self, source: Path, target: Path) -> None:
            if self.on:
                raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), str(target))
            super().replace(source, target)

    disk = NoRename()
    f = files(tmp_path, disk=disk)
    add(f, make.scored(0, 1))
    disk.on = True
    with pytest.raises(SinkStoppedError, match=r"out\.checkpoint\.json: .*quota"):
        f.checkpoint()
    f.close()
    assert not list(tmp_path.glob(".*.tmp"))
    assert files(tmp_path).offset(TP) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_directory(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(SinkStoppedError, match="Permission denied; give this user write permission"):
        files(tmp_path)


def test_not_a_regular_file(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").symlink_to("/dev/full")
    with pytest.raises(SinkStoppedError, match="not a regular file"):
        files(tmp_path)
