"""A backlog with the gaps that transactions leave, through a stage into the single file."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from services.runtime.record import TopicPartition
from services.runtime.stage import Stage, StageSettings
from services.sink.disk import Disk
from services.sink.single_file import SingleFile
from services.sink.step import SinkStep

SCORED = "rollstream.scored-rollouts"
TP = TopicPartition(SCORED, 0)
COUNT = 300
OFFSETS = [i for i in range(COUNT) if i % 7 not in {0, 3}]
"""The rest are control records, the first offset among them."""


async def no_claims(*_: Any) -> bytes:
    raise AssertionError


class Log:
    """A partition that is read from wherever the stage seeks to."""

    def __init__(self, make: Any) -> None:
        self._records = [make.scored(o, task=o) for o in OFFSETS]
        self.at: int | None = None

    def pause(self, *_: TopicPartition) -> None: ...
    def resume(self, *_: TopicPartition) -> None: ...

    async def earliest(self, _: TopicPartition) -> int:
        return 0

    def end(self, _: TopicPartition) -> int | None:
        return None

    async def seek(self, _: TopicPartition, offset: int | None) -> None:
        self.at = offset or 0

    def fetch(self) -> list[Any]:
        found = [r for r in self._records if self.at is not None and r.offset >= self.at]
        if found:
            self.at = found[-1].offset + 1
        return found


class SlowDisk(Disk):
    """Writes wait while it is not free."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.free.set()

    def write(self, fd: int, data: bytes | memoryview) -> int:
        assert self.free.wait(20)
        return super().write(fd, data)


@pytest.fixture
def disk() -> SlowDisk:
    return SlowDisk()


@pytest.fixture
async def sink(tmp_path: Path, make: Any, disk: SlowDisk) -> AsyncIterator[tuple[Stage, Log, Path]]:
    files = SingleFile(tmp_path / "out.jsonl", run_id="r", disk=disk)
    step = SinkStep(SCORED, no_claims, no_claims)
    stage, log = Stage(StageSettings("sink", 1, 60.0, in_order=True), step, step.recover, files.delivery), Log(make)
    stage.attach(log)
    await files.open()
    yield stage, log, files.paths.results
    await stage.close()
    await files.close()


async def assigned(stage: Stage, log: Log) -> None:
    log.at = None
    stage.assign([TP])
    await eventually(lambda: stage.lanes[TP].is_open and log.at is not None)


async def eventually(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def written(stage: Stage, log: Log, path: Path, count: int) -> list[int]:
    """The tasks in the file, once they are `count` or more."""
    await stage.receive([])
    await stage.receive(log.fetch())
    await eventually(lambda: len(lines(path)) >= count)
    return lines(path)


def lines(path: Path) -> list[int]:
    return [json.loads(line)["_ng_task_index"] for line in path.read_bytes().splitlines()]


async def test_a_backlog_with_gaps_is_written_in_order(sink: tuple[Stage, Log, Path]) -> None:
    """More records than the stage starts at a time: the gaps ahead of those that wait are finished before they are."""
    stage, log, path = sink
    await assigned(stage, log)
    assert await written(stage, log, path, len(OFFSETS)) == OFFSETS
    assert stage.counters.reopened == 0


async def test_lines_that_waited_through_a_rebalance_are_made_again(sink: tuple[Stage, Log, Path], disk: SlowDisk) -> None:
    """Kept instead, they would stand beyond a gap that the new opening has not read, and could never be written."""
    stage, log, path = sink
    await assigned(stage, log)
    await stage.receive([])
    disk.free.clear()
    await stage.receive(log.fetch())
    await eventually(lambda: not stage.lanes[TP].queued)
    revoked = asyncio.ensure_future(stage.revoked([TP]))
    await asyncio.sleep(0)
    disk.free.set()
    await revoked
    assert stage.lanes[TP].outbox
    await assigned(stage, log)
    await eventually(lambda: stage.counters.reopened or not stage.busy)
    assert await written(stage, log, path, len(OFFSETS)) == OFFSETS
    assert stage.counters.reopened == 0
