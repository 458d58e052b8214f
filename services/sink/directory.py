"""Whole files per run and partition, for many sink replicas.

    RUN/scored-rollouts-PPPPP-OOOOOOOOOOOOOOOOOOOO.jsonl    (partition, first offset)

Kafka holds how far a partition is. A flush has three steps, and each may be the last before a kill:

    1. commit the *intent*: Position(first, with the bit of `last` set)
    2. put the files of [first, last]
    3. commit Position(last + 1, or further when what followed made no line)

Invariants:

- *A file is a function of its name.* Its range was committed before it was written, by the partition's owner (the
  commit is fenced), and whoever owns the partition next finds the intent and finishes it: the same lines of the same
  log under the same name. So writing a file again changes nothing, not even by a worker that was stopped for an hour,
  lost the partition and goes on where it was.
- *Ranges do not overlap and leave nothing out.* A new intent begins at or after the committed position, with the first
  record that made a line. So plain concatenation of a run's files holds every line once.
- *Nothing waits in memory only.* A line that is gathered and not yet in a file belongs to a record at or above the
  committed offset, and is made again from the log.

Boundaries may therefore depend on time and size, and gaps of offsets (control records, other runs) mean nothing.
The directory does not look for a rollout that was scored twice, as the single file does: topics written exactly once
have none, and in the at-least-once mode readers drop them by identity.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from services.runtime.delivery import Delivery, DeliveryFactory, FencedError, Position, StopWorkerError
from services.runtime.record import Outgoing, TopicPartition
from services.sink.stopped import SinkStoppedError, stopped
from services.sink.store import Store, open_store
from services.sink.whole_files import Gathered, Range

OnFatal = Callable[[StopWorkerError], None]

_log = structlog.get_logger(__name__)

_LAST_FLUSH_S = 2.0
"""At the close, for writing what is held: it takes milliseconds, and without a broker it cannot be done."""

_RETRY_S = 1.0
"""After a flush that failed: soon enough not to be noticed, seldom enough for a broker that is coming back."""


@dataclass(frozen=True, slots=True)
class FlushLimits:
    """A partition is flushed when any of these is reached; `size` in bytes.

    More in a file costs memory (24 partitions of 8 MiB are 200 MB at worst) and delay, less makes many files.
    """

    lines: int = 10_000
    size: int = 8 << 20
    seconds: float = 10.0


class Directory:
    """Makes the deliveries of all partitions. `deliveries` make the Kafka side (positions, fencing), without outputs.

    `on_fatal` hears of a disk that is full when no commit is under way that could raise.
    With transactional deliveries the guarantee holds whatever happens; a plain commit (the at-least-once mode) is fenced
    by the group's generation only, which leaves a window of milliseconds after a rejoin.
    """

    def __init__(
        self,
        root: str | Path,
        deliveries: DeliveryFactory,
        *,
        limits: FlushLimits | None = None,
        store: Store | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_fatal: OnFatal | None = None,
    ) -> None:
        self._store = store or open_store(root)
        self._deliveries = deliveries
        self._limits = limits or FlushLimits()
        self._sleep = sleep
        self._on_fatal = on_fatal

    def delivery(self, partition: TopicPartition) -> DirectoryDelivery:
        """The delivery of one assignment of a partition."""
        return DirectoryDelivery(
            partition, self._deliveries(partition), self._store, self._limits, sleep=self._sleep, on_fatal=self._on_fatal
        )

    async def open(self) -> None:
        """Nothing to open: each partition's delivery opens itself."""

    async def close(self) -> None:
        """Nothing to close: each partition's delivery flushes and closes itself."""


class DirectoryDelivery:
    """One assignment of one partition (`services.runtime.delivery.Delivery`).

    `commit` takes lines in memory and returns; what it took is safe because its records are not committed in Kafka until
    the files are there. After an error `open` finds out what became of the flush and keeps what is still ours to write.
    """

    def __init__(
        self,
        partition: TopicPartition,
        kafka: Delivery,
        store: Store,
        limits: FlushLimits,
        *,
        sleep: Callable[[float], Awaitable[None]],
        on_fatal: OnFatal | None,
    ) -> None:
        self._partition = partition
        self._kafka = kafka
        self._store = store
        self._limits = limits
        self._sleep = sleep
        self._on_fatal = on_fatal
        self._gathered = Gathered(partition)
        self._committed: Position | None = None
        self._accepted = Position()
        self._intent: Range | None = None
        self._attempted: list[Position] = []
        self._lost: Exception | None = None
        self._flushing = asyncio.Lock()
        self._timer: asyncio.Task[None] | None = None

    async def open(self) -> Position:
        """Take the partition over; the position up to which lines are in files or still held here."""
        async with self._flushing:
            self._lost = None
            await self._reopen()
            return self._accepted

    async def commit(self, outputs: Sequence[Outgoing], position: Position) -> None:
        """Take lines. Raises `SinkStoppedError` when files cannot be written, and what the Kafka side raises."""
        async with self._flushing:
            if self._lost is not None:
                raise self._lost
            self._gathered.add(outputs)
            self._accepted = position
            full = self._gathered.count >= self._limits.lines or self._gathered.size >= self._limits.size
            if full:
                await self._flush()
        if self._timer is None and self._behind():
            self._timer = asyncio.create_task(self._flush_later())

    async def flush(self) -> None:
        """Write now what is held; raises as `commit` does."""
        async with self._flushing:
            if self._lost is None:
                await self._flush()

    async def close(self) -> None:
        """Write what is held if that is possible, and let go. Never raises: what is not written comes again."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            await asyncio.gather(timer, return_exceptions=True)
        try:
            async with asyncio.timeout(_LAST_FLUSH_S):
                await self.flush()
        except Exception as e:  # noqa: BLE001 - see above
            _log.info("lines left for the next owner", partition=self._named(), reason=repr(e))
        self._lost = FencedError(f"{self._named()} was given up")
        await self._kafka.close()

    async def _flush_later(self) -> None:
        """Flush after a while, and again until it succeeds; a partition that is lost is left to the lane."""
        await self._sleep(self._limits.seconds)
        while not await self._flush_again():
            await self._sleep(_RETRY_S)

    async def _flush_again(self) -> bool:
        """Whether the timer has nothing more to do."""
        async with self._flushing:
            try:
                if self._attempted and not await self._reopen():
                    raise FencedError(f"{self._named()} was taken over")
                if self._lost is None:
                    await self._flush()
            except (FencedError, StopWorkerError) as e:
                self._give_up(e)
            except Exception as e:  # noqa: BLE001 - a broker that is away comes back
                _log.warning("flush failed, trying again", partition=self._named(), reason=repr(e))
                return False
            self._timer = None
            return True

    def _give_up(self, error: FencedError | StopWorkerError) -> None:
        """Whoever commits next hears of it, and for a full disk the worker does now."""
        self._lost = error
        _log.warning("flush stopped", partition=self._named(), reason=str(error))
        if isinstance(error, StopWorkerError) and self._on_fatal is not None:
            self._on_fatal(error)

    async def _reopen(self) -> bool:
        """Read the committed position. True: it is where we left it, so the lines held are still ours to write."""
        found = await self._kafka.open()
        known = self._committed is not None and found in (self._committed, *self._attempted)
        self._committed, self._attempted = found, []
        self._intent = Range(found.offset, found.beyond[-1]) if found.offset is not None and found.finished else None
        if not known:
            self._gathered = Gathered(self._partition)
            self._accepted = Position(found.offset)
        return known

    def _behind(self) -> bool:
        return self._committed is not None and self._accepted.offset not in (None, self._committed.offset)

    async def _flush(self) -> None:
        end = self._accepted.offset
        if end is None or not self._behind():
            return
        if self._intent is not None:
            if end <= self._intent.last:
                return  # the lines of the intent are not all here yet
            await self._write(self._intent)
        span = self._gathered.range_below(end)
        if span is not None:
            await self._refuse_foreign(span)
            await self._move(Position(span.first, 1 << (span.last - span.first)))
            self._intent = span
            await self._write(span)
        await self._move(Position(end))

    async def _write(self, span: Range) -> None:
        """Put the files of a committed intent. One that is there already is the same: another owner wrote it."""
        for name, data in self._gathered.files(span).items():
            with self._explained(name):
                if not await self._store.exists(name):
                    await self._store.put(name, data)
        self._gathered.drop_below(span.last + 1)
        self._intent = None

    async def _refuse_foreign(self, span: Range) -> None:
        """No file of a range that has no intent yet can be ours, unless another owner has gone on meanwhile."""
        for name in self._gathered.names(span):
            with self._explained(name):
                taken = await self._store.exists(name)
            if taken:
                await self._move(Position(span.first))  # raises when it is another owner's
                raise SinkStoppedError(
                    f"{self._store.where}/{name} is there already, and not by this consumer group: another group or "
                    "a former topic wrote it, or offsets were reset. Use an empty directory, or remove the run's files"
                )

    async def _move(self, position: Position) -> None:
        self._attempted.append(position)
        await self._kafka.commit((), position)
        self._committed, self._attempted = position, []

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as e:
            raise stopped(f"{self._store.where}/{name}", e) from e

    def _named(self) -> str:
        return f"{self._partition.topic}/{self._partition.partition}"
