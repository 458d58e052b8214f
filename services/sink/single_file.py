"""One run into one pair of files, by one process.

Owns the thread that writes and the rhythm of checkpoints. Invariants: all changes of the files happen in that thread,
one after another; when `commit` returns, the lines are with the operating system in whole; a checkpoint (fsync of both
files, then of the checkpoint that replaces the former) follows within `checkpoint_every_s`, and at the close. A crash
in between costs only reading again: the next start cuts the files to the checkpoint and continues from its offsets.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import structlog

from services.runtime.delivery import Delivery, FencedError, Position
from services.runtime.record import Outgoing, TopicPartition
from services.sink.disk import Disk
from services.sink.line_files import LineFiles, Mode
from services.sink.paths import RunPaths
from services.sink.step import offset_of
from services.sink.stopped import SinkStoppedError

T = TypeVar("T")

Report = Callable[[Mapping[TopicPartition, int]], Awaitable[None]]

CHECKPOINT_EVERY_S = 0.2
"""An fsync on a slow disk takes 10-30 ms; five a second leave most of the time for writing, and a crash costs 0.2 s of
reading again."""

_log = structlog.get_logger(__name__)


class SingleFile:
    """The files `STEM.jsonl` and `STEM_failures.jsonl` of `output`, shared by the deliveries of all partitions.

    `report` is told the offsets of every checkpoint (to show lag in Kafka); what it raises is logged, since the
    checkpoint alone decides where a restart begins. `start_at` is where a partition begins that no checkpoint has. Must
    be opened and used on one event loop.
    """

    def __init__(
        self,
        output: Path,
        *,
        run_id: str,
        mode: Mode = Mode.CONTINUE,
        checkpoint_every_s: float = CHECKPOINT_EVERY_S,
        report: Report | None = None,
        on_fatal: Callable[[SinkStoppedError], None] | None = None,
        disk: Disk | None = None,
        start_at: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        self.paths = RunPaths.of(output)
        self._files = LineFiles(self.paths, run_id, mode, disk)
        self._every_s = checkpoint_every_s
        self._report = report
        self._on_fatal = on_fatal
        self._start_at = start_at or {}
        self._thread = ThreadPoolExecutor(1, "sink")
        self._opening: asyncio.Future[None] | None = None
        self._due: asyncio.Task[None] | None = None
        self._failed: SinkStoppedError | None = None
        self._tokens = itertools.count(1)
        self._owners: dict[TopicPartition, int] = {}

    async def open(self) -> None:
        """Lock the files and restore the last checkpoint; raises `SinkStoppedError`. Further calls do nothing."""
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._in_thread(self._files.open))
        await asyncio.shield(self._opening)

    def delivery(self, partition: TopicPartition) -> Delivery:
        """The delivery of one partition; a newer one for the same partition fences the older."""
        token = self._owners[partition] = next(self._tokens)
        return PartitionDelivery(self, partition, token)

    async def checkpoint(self) -> None:
        """Record now what was written; raises `SinkStoppedError`."""
        await self._in_thread(self._files.checkpoint)
        if self._report is not None:
            try:
                await self._report(self._files.offsets)
            except Exception as e:  # noqa: BLE001 - see the class
                _log.warning("sink offsets not reported", error=str(e))

    async def close(self) -> None:
        """Write a last checkpoint and let go of the files. Raises `SinkStoppedError` when that checkpoint fails."""
        due, self._due = self._due, None
        if due is not None:
            due.cancel()
            await asyncio.gather(due, return_exceptions=True)
        try:
            if self._opening is not None and self._files.dirty:
                await self.checkpoint()
        finally:
            await self._in_thread(self._files.close)
            self._thread.shutdown(wait=False)

    async def position(self, partition: TopicPartition) -> Position:
        """How far the files are with a partition; opens them first."""
        await self.open()
        found = await self._in_thread(self._files.offset, partition)
        return Position(self._start_at.get(partition) if found is None else found)

    def owns(self, partition: TopicPartition, token: int) -> bool:
        """Whether the delivery with this token is the newest of the partition."""
        return self._owners.get(partition) == token

    async def append(self, partition: TopicPartition, outputs: Sequence[Outgoing], offset: int | None) -> None:
        """Append lines and see to it that a checkpoint follows; raises `SinkStoppedError` with nothing appended."""
        if self._failed is not None:
            raise self._failed
        await self._in_thread(self._files.append, partition, outputs, offset)
        if self._due is None:
            self._due = asyncio.create_task(self._checkpoint_soon())

    async def _checkpoint_soon(self) -> None:
        await asyncio.sleep(self._every_s)
        self._due = None
        try:
            await self.checkpoint()
        except SinkStoppedError as e:
            self._failed = e  # whoever commits next hears of it
            _log.error("sink stopped", error=str(e))
            if self._on_fatal is not None:
                self._on_fatal(e)

    async def _in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)


class PartitionDelivery:
    """One assignment of one partition (`services.runtime.delivery.Delivery`)."""

    def __init__(self, sink: SingleFile, partition: TopicPartition, token: int) -> None:
        self._sink = sink
        self._partition = partition
        self._token = token

    async def open(self) -> Position:
        """Position of the partition in the files; raises `SinkStoppedError`."""
        return await self._sink.position(self._partition)

    async def commit(self, outputs: Sequence[Outgoing], position: Position) -> None:
        """Append the lines; raises `SinkStoppedError`, or `FencedError` when the partition was assigned anew since."""
        if not self._sink.owns(self._partition, self._token):
            raise FencedError(f"{self._partition.topic}/{self._partition.partition} was assigned anew")
        # What counts as finished beyond the position are gaps (control records); a line from there would be written twice.
        last = offset_of(outputs[-1]) if outputs else -1
        if position.offset is not None and last >= position.offset:
            raise ValueError(f"the sink writes records in order; a line of {last} is beyond {position.offset}")
        await self._sink.append(self._partition, outputs, position.offset)

    async def close(self) -> None:
        """Commit no more; the files are closed by their owner (`SingleFile.close`)."""
        self._token = 0
