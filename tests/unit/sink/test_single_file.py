from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from services.runtime.delivery import FencedError, Position
from services.runtime.record import TopicPartition
from services.sink.disk import Disk
from services.sink.single_file import SingleFile
from services.sink.step import SinkStep
from services.sink.stopped import SinkStoppedError

SCORED, FAILED = "rollstream.scored-rollouts", "rollstream.failures"
TP0, TP1, TPF = TopicPartition(SCORED, 0), TopicPartition(SCORED, 1), TopicPartition(FAILED, 0)
NEVER = 1e9


async def no_claims(*_: Any) -> bytes:
    raise AssertionError


STEP = SinkStep(SCORED, no_claims, no_claims)


def lines(path: Path) -> list[int]:
    return [json.loads(x)["_ng_task_index"] for x in path.read_bytes().splitlines()]


def offsets(sink: SingleFile) -> Any:
    return json.loads(sink.paths.checkpoint.read_bytes())["offsets"]


async def test_partitions_share_the_files_and_each_continues(tmp_path: Path, make: Any) -> None:
    sink = SingleFile(tmp_path / "deep" / "out.jsonl", run_id="r", checkpoint_every_s=NEVER)
    a, b, f = (sink.delivery(tp) for tp in (TP0, TP1, TPF))
    assert [await d.open() for d in (a, b, f)] == [Position()] * 3
    await asyncio.gather(
        a.commit(STEP(make.scored(0, 1)), Position(1)),  # type: ignore[arg-type]
        b.commit(STEP(make.scored(7, 2, partition=1)), Position(9)),  # type: ignore[arg-type]
        f.commit(STEP(make.failed(4, make.event(task=3))), Position(5)),  # type: ignore[arg-type]
    )
    assert lines(sink.paths.results) == [1, 2]
    await sink.close()
    again = SingleFile(tmp_path / "deep" / "out.jsonl", run_id="r")
    assert [await again.delivery(tp).open() for tp in (TP0, TP1, TPF)] == [Position(1), Position(9), Position(5)]
    await again.close()
    assert lines(sink.paths.failures) == [3]


async def test_lines_are_with_the_system_when_commit_returns_and_the_checkpoint_follows(tmp_path: Path, make: Any) -> None:
    reported: asyncio.Queue[Mapping[TopicPartition, int]] = asyncio.Queue()
    sink = SingleFile(tmp_path / "out.jsonl", run_id="r", checkpoint_every_s=0.01, report=reported.put)
    delivery = sink.delivery(TP0)
    await delivery.open()
    await delivery.commit(STEP(make.scored(0, 1)), Position(1))  # type: ignore[arg-type]
    assert lines(sink.paths.results) == [1]
    assert await asyncio.wait_for(reported.get(), 10) == {TP0: 1}
    assert offsets(sink) == {SCORED: {"0": 1}}
    await sink.close()


async def test_checkpoints_are_bounded_however_many_commits_there_are(tmp_path: Path, make: Any) -> None:
    class Counting(Disk):
        replaced = 0

        def replace(self, source: Path, target: Path) -> None:
            Counting.replaced += 1
            super().replace(source, target)

    sink = SingleFile(tmp_path / "out.jsonl", run_id="r", checkpoint_every_s=NEVER, disk=Counting())
    delivery = sink.delivery(TP0)
    await delivery.open()
    for i in range(200):
        await delivery.commit(STEP(make.scored(i, i)), Position(i + 1))  # type: ignore[arg-type]
    assert Counting.replaced == 1  # the empty one of a new pair of files
    await sink.close()
    assert Counting.replaced == 2
    assert offsets(sink) == {SCORED: {"0": 200}}


async def test_a_record_without_a_line_still_moves_the_position(tmp_path: Path) -> None:
    sink = SingleFile(tmp_path / "out.jsonl", run_id="r", checkpoint_every_s=NEVER)
    delivery = sink.delivery(TP0)
    await delivery.open()
    await delivery.commit((), Position(12))
    await sink.close()
    assert offsets(sink) == {SCORED: {"0": 12}}


async def test_a_partition_assigned_anew_fences_the_former_delivery(tmp_path: Path, make: Any) -> None:
    sink = SingleFile(tmp_path / "out.jsonl", run_id="r", checkpoint_every_s=NEVER)
    old = sink.delivery(TP0)
    await old.open()
    await old.commit(STEP(make.scored(0, 1)), Position(1))  # type: ignore[arg-type]
    new = sink.delivery(TP0)
    assert await new.open() == Position(1)
    with pytest.raises(FencedError):
        await old.commit(STEP(make.scored(1, 2)), Position(2))  # type: ignore[arg-type]
    await new.close()
    with pytest.raises(FencedError):
        await new.commit((), Position(2))
    await sink.close()
    assert lines(sink.paths.results) == [1]


async def test_out_of_order_work_is_refused(tmp_path: Path, make: Any) -> None:
    """Gaps ahead of records that wait are not work."""
    sink = SingleFile(tmp_path / "out.jsonl", run_id="r")
    delivery = sink.delivery(TP0)
    await delivery.open()
    with pytest.raises(ValueError, match="in order"):
        await delivery.commit(STEP(make.scored(4, 1)), Position(3, 0b10))  # type: ignore[arg-type]
    await delivery.commit(STEP(make.scored(2, 2)), Position(3, 0b10))  # type: ignore[arg-type]
    await sink.close()
    assert lines(sink.paths.results) == [2]


async def test_a_failed_checkpoint_stops_the_next_commit(tmp_path: Path, make: Any) -> None:
    class NoSpaceForCheckpoints(Disk):
        failed = threading.Event()
        on = False

        def create(self, path: Path) -> int:
            if self.on:
                self.failed.set()
                raise OSError(28, "No space left on device", str(path))
            return super().create(path)

    disk = NoSpaceForCheckpoints()
    sink = SingleFile(tmp_path / "out.jsonl", run_id="r", checkpoint_every_s=0.001, disk=disk)
    delivery = sink.delivery(TP0)
    await delivery.open()
    disk.on = True
    await delivery.commit(STEP(make.scored(0, 1)), Position(1))  # type: ignore[arg-type]
    await asyncio.to_thread(disk.failed.wait, 10)

    async def go_on() -> None:
        for n in range(1, 10_000):
            await delivery.commit((), Position(n))

    with pytest.raises(SinkStoppedError, match="No space left on device; free some space"):
        await go_on()
    disk.on = False
    await sink.close()
    assert lines(sink.paths.results) == [1]


async def test_a_report_that_fails_changes_nothing(tmp_path: Path, make: Any) -> None:
    async def report(_: Any) -> None:
        raise ConnectionError("broker away")

    sink = SingleFile(tmp_path / "out.jsonl", run_id="r", checkpoint_every_s=NEVER, report=report)
    delivery = sink.delivery(TP0)
    await delivery.open()
    await delivery.commit(STEP(make.scored(0, 1)), Position(1))  # type: ignore[arg-type]
    await sink.close()
    assert offsets(sink) == {SCORED: {"0": 1}}


async def test_the_second_process_is_told_why(tmp_path: Path) -> None:
    first, second = (SingleFile(tmp_path / "out.jsonl", run_id="r") for _ in range(2))
    await first.open()
    for _ in range(2):
        with pytest.raises(SinkStoppedError, match="another process is writing"):
            await second.delivery(TP0).open()
    await second.close()
    await first.close()
