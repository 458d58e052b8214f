"""The single file, killed at every system call and every byte, and after power cuts."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.runtime.record import TopicPartition
from services.sink.disk import Disk
from services.sink.line_files import LineFiles, Mode
from services.sink.paths import RunPaths
from services.sink.step import SinkStep

SCORED, FAILED = "rollstream.scored-rollouts", "rollstream.failures"
Log = dict[TopicPartition, list[Any]]


class Killed(BaseException):
    """SIGKILL: nothing after it runs."""


class MortalDisk(Disk):
    """Dies after `ticks`: a system call takes one before it has its effect, a write one for each byte."""

    def __init__(self, ticks: float = float("inf")) -> None:
        self.ticks = ticks
        self.spent = 0
        self.calls: list[int] = []  # the ticks spent before each call
        self.paths: dict[int, Path] = {}
        self.synced: dict[Path, int] = {}
        self.unsynced_rename: tuple[Path, bytes | None] | None = None

    def _tick(self, count: int = 1) -> int:
        """How many ticks of `count` this disk lives to see."""
        self.calls.append(self.spent)
        lived = int(min(count, self.ticks - self.spent))
        self.spent += lived
        return lived

    def _live(self) -> None:
        if not self._tick():
            raise Killed

    def open(self, path: Path) -> int:
        self._live()
        fd = super().open(path)
        self.paths[fd] = path
        self.synced.setdefault(path, os.fstat(fd).st_size)
        return fd

    def create(self, path: Path) -> int:
        self._live()
        return super().create(path)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        lived = self._tick(len(data))
        taken = super().write(fd, data[:lived]) if lived else 0
        if lived < len(data):
            raise Killed
        return taken

    def truncate(self, fd: int, size: int) -> None:
        self._live()
        super().truncate(fd, size)

    def sync(self, fd: int) -> None:
        self._live()
        if fd in self.paths:
            self.synced[self.paths[fd]] = os.fstat(fd).st_size

    def replace(self, source: Path, target: Path) -> None:
        self._live()
        self.unsynced_rename = (target, target.read_bytes() if target.exists() else None)
        super().replace(source, target)

    def remove(self, path: Path) -> None:
        self._live()
        super().remove(path)

    def sync_directory(self, folder: Path) -> None:
        self._live()
        self.unsynced_rename = None

    def cut_power(self, rng: random.Random) -> None:
        """Leave of what was never synced any beginning, and of a rename that was never synced either side."""
        for path, kept in self.synced.items():
            size = path.stat().st_size
            if size > kept:
                os.truncate(path, rng.randint(kept, size))
        if self.unsynced_rename is not None and rng.random() < 0.5:
            path, old = self.unsynced_rename
            path.unlink() if old is None else path.write_bytes(old)


async def no_claims(*_: Any) -> bytes:
    raise AssertionError


STEP = SinkStep(SCORED, no_claims, no_claims, "r")


def workload(make: Any) -> Log:
    """Results and failures of one run, with a duplicate, a superseded attempt, another run and an unreadable record."""
    scored = [
        make.scored(0, 1),
        make.scored(2, 2),
        make.scored(3, 1, again=True),
        make.scored(5, 9, run="x"),
        make.record(SCORED, 6, b"{", [("rs-run", b"r")]),
        make.scored(7, 3),
    ]
    failed = [make.failed(1, make.event(task=4)), make.failed(2, make.event(task=4)), make.failed(5, make.event(task=None))]
    return {TopicPartition(SCORED, 0): scored, TopicPartition(FAILED, 0): failed}


def feed(files: LineFiles, log: Log, checkpoint_every: int, batch: int = 1) -> None:
    """Bring the files up to the end of the log, one partition after the other (the order between them is free)."""
    steps = 0
    for partition, records in log.items():
        start = files.offset(partition) or 0
        todo = [r for r in records if r.offset >= start]
        for i in range(0, len(todo), batch):
            some = todo[i : i + batch]
            files.append(partition, [o for r in some for o in STEP(r)], some[-1].offset + 1)  # type: ignore[union-attr]
            steps += 1
            if steps % checkpoint_every == 0:
                files.checkpoint()
    files.checkpoint()


def run(folder: Path, log: Log, disk: Disk, mode: Mode = Mode.CONTINUE, checkpoint_every: int = 2, batch: int = 1) -> bool:
    """One life of the sink; False when it was killed."""
    files = LineFiles(RunPaths.of(folder / "out.jsonl"), "r", mode, disk)
    try:
        files.open()
        feed(files, log, checkpoint_every, batch)
    except Killed:
        return False
    finally:
        files.close()
    return True


def content(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if not p.name.startswith(".")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    path.mkdir()
    return path


def unbroken(tmp_path: Path, log: Log) -> tuple[dict[str, bytes], MortalDisk]:
    """What the files hold when nothing goes wrong, and the disk that they were written to."""
    disk, clean = MortalDisk(), tmp_path / "clean"
    clean.mkdir()
    assert run(clean, log, disk)
    return content(clean), disk


def test_the_unbroken_run_counts_each_rollout_once(tmp_path: Path, make: Any) -> None:
    found, _ = unbroken(tmp_path, workload(make))
    assert found["out.jsonl"].count(b"\n") == 3
    assert found["out_failures.jsonl"].count(b"\n") == 5
    assert found["out_failures.jsonl"].count(b'"outcome":"duplicate"') == 2


@pytest.mark.timeout(240)
@pytest.mark.parametrize("stride", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_every_call_and_byte_it_ends_with_the_same_files(
    tmp_path: Path, folder: Path, make: Any, stride: int
) -> None:
    """At every call, the first and last bytes of every write, and every `stride`-th byte between."""
    log = workload(make)
    expected, disk = unbroken(tmp_path, log)
    near = {tick + n for tick in disk.calls for n in (-2, -1, 0, 1, 2)}
    for tick in sorted(near.union(range(0, disk.spent, stride)).intersection(range(disk.spent))):
        assert not run(folder, log, MortalDisk(tick))
        before = {p: p.read_bytes() for p in folder.glob("out*.jsonl")}
        assert run(folder, log, MortalDisk()), tick
        assert content(folder) == expected, f"killed at tick {tick} with {before}"
        shutil.rmtree(folder)
        folder.mkdir()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lives=st.lists(st.integers(0, 3000), max_size=6),
    power=st.booleans(),
    seed=st.integers(0, 1 << 16),
    every=st.integers(1, 5),
    batch=st.integers(1, 4),
)
def test_killed_again_and_again_with_power_cuts(
    tmp_path_factory: Any, make: Any, lives: Sequence[int], power: bool, seed: int, every: int, batch: int
) -> None:
    log, rng = workload(make), random.Random(seed)
    tmp_path = tmp_path_factory.mktemp("power")
    expected, _ = unbroken(tmp_path, log)
    folder = tmp_path / "run"
    folder.mkdir()
    for ticks in lives:
        disk = MortalDisk(ticks)
        run(folder, log, disk, checkpoint_every=every, batch=batch)
        if power:
            disk.cut_power(rng)
    assert run(folder, log, MortalDisk(), checkpoint_every=every, batch=batch)
    found = content(folder)
    assert sorted(found["out.jsonl"].splitlines()) == sorted(expected["out.jsonl"].splitlines())
    assert sorted(found["out_failures.jsonl"].splitlines()) == sorted(expected["out_failures.jsonl"].splitlines())


@pytest.mark.timeout(240)
@pytest.mark.parametrize("stride", [29, pytest.param(1, marks=pytest.mark.slow)])
def test_files_cut_at_any_byte_without_a_checkpoint_are_taken_over(
    tmp_path: Path, folder: Path, make: Any, stride: int
) -> None:
    """Cut around the end of every line, and at every `stride`-th byte.

    The checkpoint is lost: resume keeps whole lines, and their records coming again are not written twice.
    """
    log = workload(make)
    expected, _ = unbroken(tmp_path, log)
    for name in ("out.jsonl", "out_failures.jsonl"):
        full = len(expected[name])
        ends = (n + 1 for n, byte in enumerate(expected[name]) if byte == ord(b"\n"))
        near = {end + n for end in ends for n in (-2, -1, 0, 1, 2)}
        for size in sorted(near.union(range(0, full + 1, stride)).intersection(range(full + 1))):
            for other in ("out.jsonl", "out_failures.jsonl"):
                (folder / other).write_bytes(expected[other] if other != name else expected[other][:size])
            assert run(folder, log, MortalDisk(), Mode.RESUME)
            assert content(folder) == expected, (name, size)
            shutil.rmtree(folder)
            folder.mkdir()


def test_fresh_killed_at_every_call_never_mixes_old_and_new(tmp_path: Path, folder: Path, make: Any) -> None:
    log = workload(make)
    expected, _ = unbroken(tmp_path, log)
    old = [make.scored(i, 100 + i) for i in range(3)]
    tick, dead = 0, True
    while dead:
        assert run(folder, {TopicPartition(SCORED, 0): old}, MortalDisk(), Mode.FRESH)
        (folder / "out_aggregate_metrics.json").write_text("[]")
        dead = not run(folder, log, MortalDisk(tick), Mode.FRESH)
        if dead:
            assert run(folder, log, MortalDisk(), Mode.FRESH)
        assert content(folder) == expected, tick
        tick += 37
    assert tick > 1000
