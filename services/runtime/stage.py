"""A stage of the pipeline: the lanes of its partitions, and the bound on what it works on at once.

Owns scheduling, flow control, deadlines, rebalance and drain; it does not know where records come from (`Source`) nor how
they are made durable (`Delivery`). Invariants:

- At most `concurrency` records are worked on at a time, and only a bounded number wait behind them: a full stage pauses
  its partitions. Fetching never waits on handling. What a step holds back is neither: it costs an open offset.
- A batch is booked only on the assignment it was fetched under. A fetch that began before a lane opened may hold records
  from before the rebalance, so the first batch after it is thrown away and read again.
- A step that raises costs one record; `recover` turns it into a failure event.
- Whatever keeps a fetched batch from being booked closes the lane until it has been opened again: records passed over in
  silence would look like a gap in the log, and gaps count as finished.
- A lost partition is dropped quietly; a broken one is opened again, with back-off, for as long as it is ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from services.runtime.delivery import Delivery, DeliveryFactory, FencedError, Position, StopWorkerError
from services.runtime.histogram import Histogram
from services.runtime.lane import Lane, LaneState, Memory, Work
from services.runtime.record import ConsumerRecord, Held, Keeper, Outputs, Step, Together, TopicPartition

log = structlog.get_logger()

MAX_FETCH = 500
"""Records taken from the consumer at a time: enough that the cost of a fetch is spread, few enough that starting them does
not hold up the event loop."""

_ROOM = 64
"""Records for which a paused partition's commit must have room before it is read again: enough to be worth a fetch, few
enough that a partition with many records in flight beyond a slow one still moves."""

_START_SLICE = 64
"""Records started before other work on the event loop gets a turn."""

_TICK_S = 0.25
_QUIET_S = 5.0
"""A partition that is read and gave nothing for this long has been read to its end, whatever the other partitions hold: one
that has records gives some with each fetch, many times a second."""

_SUSPEND_TIMEOUT_S = 5.0
"""How long a revocation waits for a commit under way; the group waits with us."""

_REOPEN_MIN_S, _REOPEN_MAX_S = 0.2, 5.0
_FENCED_RETRY_S = 10.0
"""Fenced while the group still says the partition is ours: whoever fenced us was the newer owner or is gone by then."""


class Source(Protocol):
    """Where records come from: the consumer, as far as a stage needs it."""

    def pause(self, *partitions: TopicPartition) -> None: ...
    def resume(self, *partitions: TopicPartition) -> None: ...
    async def seek(self, partition: TopicPartition, offset: int | None) -> None:
        """Read from `offset`, or from the beginning when it is None."""
        ...

    async def earliest(self, partition: TopicPartition) -> int:
        """The first offset that the log still has."""
        ...

    def end(self, partition: TopicPartition) -> int | None:
        """The offset behind the last record, as far as it is known without asking."""
        ...


@dataclass(frozen=True, slots=True)
class StageSettings:
    """Bounds of a stage. `work_timeout_s` is the last resort behind the deadlines that steps keep themselves.

    `in_order`: what is committed is never ahead of a record that is not (with a concurrency of one).
    `replay`: records below the committed offset that are read again when a partition comes, for a step that remembers.
    """

    name: str
    concurrency: int
    work_timeout_s: float
    replay: int = 0
    in_order: bool = False


@dataclass(slots=True)
class StageCounters:
    """What a stage has done since it started. `expired`: offsets that were gone from the log before they were read."""

    delivered: int = 0
    finished: int = 0
    commits: int = 0
    recovered: int = 0
    reopened: int = 0
    expired: int = 0


class Stage:
    """The lanes of one stage in one worker.

    `recover(record, error)` makes the outputs of a record whose step raised or ran over. `gate()` is asked whether new
    records may start; a closed gate pauses the source. `memory` is told which records are finished and which partitions went
    elsewhere, for a step that has to recognise a repetition. `keeper` is the step, when it holds records back: it is told the
    same, and asked for those that need not wait any longer.
    """

    def __init__(
        self,
        settings: StageSettings,
        step: Step,
        recover: Callable[[ConsumerRecord, Exception], Outputs],
        deliveries: DeliveryFactory,
        gate: Callable[[], bool] = lambda: True,
        on_fatal: Callable[[Exception], None] | None = None,
        memory: Memory | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        self.settings = settings
        self.counters = StageCounters()
        self.seconds = Histogram()
        self.lanes: dict[TopicPartition, Lane] = {}
        self.assigned = False
        self._step = step
        self._recover = recover
        self._deliveries = deliveries
        self._gate = gate
        self._on_fatal = on_fatal
        self._memory = memory if memory is not None else keeper
        self._keeper = keeper
        self._source: Source | None = None
        self._epoch = 0
        self._fetch_epoch = 0
        self._paused: set[TopicPartition] = set()
        self._draining = False
        self._closed = False
        self._shut = False
        self._pumping = False
        self._rebalancing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._openings: dict[Lane, asyncio.Task[None]] = {}
        self._clock: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()

    @property
    def ready(self) -> bool:
        """Partitions are assigned and all of them open."""
        return self.assigned and all(lane.is_open for lane in self.lanes.values())

    @property
    def in_flight(self) -> int:
        """Records accepted, not held back and not yet committed."""
        return sum(lane.in_flight for lane in self.lanes.values())

    @property
    def held(self) -> int:
        """Records held back."""
        return sum(len(lane.held) for lane in self.lanes.values())

    @property
    def busy(self) -> int:
        """Records being worked on or waiting for their commit."""
        return sum(len(lane.running) + len(lane.outbox) + len(lane.committing) for lane in self.lanes.values())

    @property
    def active(self) -> int:
        """Records being worked on."""
        return sum(len(lane.running) for lane in self.lanes.values())

    @property
    def oldest_start(self) -> float | None:
        """The loop's time, in seconds, at which the longest-running work began."""
        return min((work.started for lane in self.lanes.values() for work in lane.running.values()), default=None)

    def lag(self, partition: TopicPartition) -> int | None:
        """Offsets of an assigned partition that are not finished; None where its end or our place is not known yet."""
        lane, end = self.lanes[partition], self._source.end(partition) if self._source is not None else None
        return None if end is None else lane.behind(end)

    def wrap(self, step: Callable[[Step], Step], keeper: Callable[[Keeper], Keeper]) -> None:
        """Put something around the step, and around its keeper, that sees what goes in and what comes out."""
        self._step = step(self._step)
        self._keeper = keeper(self._keeper) if self._keeper is not None else None

    def attach(self, source: Source) -> None:
        """Connect the source."""
        self._source = source

    def start(self) -> None:
        """Start the stage's clock."""
        self._clock = self._spawn(self._tick())

    # --- rebalance -------------------------------------------------------------------------------------------------

    async def revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """The group is rebalancing: suspend, and let a commit under way end."""
        self._rebalancing = True
        lanes = [self.lanes[p] for p in partitions if p in self.lanes]
        for lane in lanes:
            self._stop_opening(lane)
        await asyncio.gather(*(lane.suspend(_SUSPEND_TIMEOUT_S) for lane in lanes))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """The group has settled: drop what went elsewhere, open what is ours. Does not wait."""
        if self._closed:
            return
        self._rebalancing = False
        wanted = set(partitions)
        for partition in [p for p in self.lanes if p not in wanted]:
            self._spawn(self._drop(self.lanes.pop(partition)))
        self._paused = set(wanted)
        self._required_source().pause(*wanted)
        for partition in sorted(wanted):
            if partition not in self.lanes:
                delivery = self._deliveries(partition)
                self.lanes[partition] = self._lane(partition, delivery)
            self.lanes[partition].shut()
            self._reopen(self.lanes[partition])
        self.assigned = True

    def _reopen(self, lane: Lane, delay: float = 0.0) -> None:
        """Open a lane in the background. An opening that began earlier ends: what it read may no longer be true."""
        self._stop_opening(lane)
        task = self._openings[lane] = self._spawn(self._open(lane, delay))
        task.add_done_callback(lambda done: self._openings.pop(lane) if self._openings.get(lane) is done else None)

    def _stop_opening(self, lane: Lane) -> asyncio.Task[None] | None:
        opening = self._openings.pop(lane, None)
        if opening is not None:
            opening.cancel()
        return opening

    def _lane(self, partition: TopicPartition, delivery: Delivery) -> Lane:
        return Lane(
            partition,
            delivery,
            on_commit=self._committed,
            on_error=self._broken,
            memory=self._memory,
            in_order=self.settings.in_order,
        )

    async def _open(self, lane: Lane, delay: float = 0.0) -> None:
        """Open a lane, again and again while the partition is ours and the broker is not."""
        retry = _REOPEN_MIN_S
        await asyncio.sleep(delay)
        while self._owns(lane) and not lane.is_open:
            try:
                position = await lane.take_over()
                if not self._owns(lane):
                    return
                self._epoch += 1
                lane.open(position, self._epoch, self.settings.replay)
                lane.fed_at = asyncio.get_running_loop().time()
                await self._required_source().seek(lane.partition, lane.read_from)
                await self._tell_of_gap(lane.partition, position)
            except StopWorkerError as e:
                self._fatal(e)
                return
            except Exception as e:  # noqa: BLE001 - the broker may be away for any reason; the partition is still ours
                log.warning("partition not open yet", stage=self.settings.name, partition=str(lane.partition), error=repr(e))
                lane.shut()
                await asyncio.sleep(retry)
                retry = min(retry * 2, _REOPEN_MAX_S)
        self._note_idle()
        self._pump()
        self._regulate()

    async def _tell_of_gap(self, partition: TopicPartition, position: Position) -> None:
        """Records that went with the topic's retention before anybody read them count as finished, but not without a word."""
        earliest = await self._required_source().earliest(partition)
        if position.offset is not None and earliest > position.offset:
            self.counters.expired += earliest - position.offset
            log.error("records expired unread", stage=self.settings.name, partition=str(partition), first=position.offset,
                      last=earliest - 1, remedy="longer retention of the topic, or workers that keep up")  # fmt: skip

    def _broken(self, lane: Lane, error: Exception) -> None:
        """A lane cannot go on (its commit failed, say): open it again, which finds out what is true."""
        lane.shut()
        if not self._owns(lane):
            return
        if isinstance(error, StopWorkerError):
            self._fatal(error)
            return
        fenced = isinstance(error, FencedError)
        log.log(20 if fenced else 30, "partition lost" if fenced else "partition broken", stage=self.settings.name,
                partition=str(lane.partition), error=repr(error))  # fmt: skip
        self.counters.reopened += 1
        self._pause({lane.partition})
        if not self._rebalancing:  # else the assignment opens it
            self._reopen(lane, _FENCED_RETRY_S if fenced else _REOPEN_MIN_S)

    async def _drop(self, lane: Lane) -> None:
        opening = self._stop_opening(lane)
        if opening is not None:  # it might fence the new owner after we have let go
            await asyncio.gather(opening, return_exceptions=True)
        await lane.close()
        if self._memory is not None and lane.partition not in self.lanes:  # if it is back, its opening begins afresh
            self._memory.forget(lane.partition.partition)
        self._note_idle()
        self._pump()

    def _owns(self, lane: Lane) -> bool:
        return self.lanes.get(lane.partition) is lane and lane.state is not LaneState.CLOSED

    # --- records in ------------------------------------------------------------------------------------------------

    async def receive(self, records: Sequence[ConsumerRecord]) -> None:
        """Take one fetched batch. Never waits on the work."""
        for partition, batch in _by_partition(records).items():
            lane = self.lanes.get(partition)
            if lane is None or not lane.is_open or self._draining:
                continue  # they will be read again when the lane opens, here or elsewhere
            try:
                await self._book(lane, batch)
            except Exception as e:  # noqa: BLE001 - the consumer is past this batch: only opening again reads it again
                self._broken(lane, e)
        self._fetch_epoch = self._epoch
        self._pump()
        self._regulate()

    async def refetch(self, error: Exception) -> None:
        """A fetch failed, and what it had taken from the log by then is gone: read on behind what was booked."""
        log.warning("fetch failed", stage=self.settings.name, error=repr(error))
        for lane in [lane for lane in self.lanes.values() if lane.is_open]:
            try:
                await self._required_source().seek(lane.partition, lane.read_next)
            except Exception as e:  # noqa: BLE001 - only opening again is as good as the seek
                self._broken(lane, e)

    async def _book(self, lane: Lane, batch: Sequence[ConsumerRecord]) -> None:
        if lane.epoch > self._fetch_epoch:
            await self._required_source().seek(lane.partition, lane.read_from)
            return
        lane.fed_at = asyncio.get_running_loop().time()
        refused = lane.accept(batch)
        self.counters.delivered += len(batch) if refused is None else sum(r.offset < refused for r in batch)
        if refused is not None:
            await self._required_source().seek(lane.partition, refused)

    # --- work ------------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Start queued records while there is room, a slice at a time."""
        if self._pumping or self._draining:
            return
        started = 0
        while started < _START_SLICE and self.active < self.settings.concurrency and self._may_start():
            lane_record = self._next()
            if lane_record is None:
                break
            self._start(*lane_record)
            started += 1
        if started == _START_SLICE:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._pump_again)
        elif self._paused:
            self._regulate()

    def _pump_again(self) -> None:
        self._pumping = False
        self._pump()

    def _next(self) -> tuple[Lane, ConsumerRecord] | None:
        """The next record of the lane that has been waiting longest for its turn."""
        for lane in self.lanes.values():
            if lane.queued and lane.is_open:
                record = lane.take()
                self.lanes[lane.partition] = self.lanes.pop(lane.partition)  # to the back of the queue
                return (lane, record) if record is not None else None
        return None

    def _start(self, lane: Lane, record: ConsumerRecord) -> None:
        try:
            result = self._step(record)
        except StopWorkerError as e:
            self._fatal(e)
            return
        except Exception as e:  # noqa: BLE001 - one bad record costs one record
            recovered = self._recovered(record, e)
            if recovered is None:
                return
            result = recovered
        if isinstance(result, Sequence):  # half the time of `inspect.isawaitable` for what answers at once
            lane.finish(record.offset, result)
        elif isinstance(result, Held):
            lane.hold(record.offset)
        elif isinstance(result, Together):
            self._run(lane, result.offsets, self._await_together(lane, result))
        else:
            self._run(lane, (record.offset,), self._await(lane, record, result))

    def _run(self, lane: Lane, offsets: Sequence[int], work: Coroutine[Any, Any, None]) -> None:
        loop = asyncio.get_running_loop()
        lane.run(Work(offsets, loop.create_task(work), loop.time()))

    async def _await(self, lane: Lane, record: ConsumerRecord, result: Awaitable[Outputs]) -> None:
        offset = record.offset
        outputs: Outputs | None
        try:
            outputs = await result
        except asyncio.CancelledError:
            cut_off = self._cut_off(lane, offset)
            if cut_off is None:
                return
            outputs = self._recovered(record, cut_off)
        except Exception as e:  # noqa: BLE001 - one bad record costs one record
            outputs = self._recovered(record, e)
        if outputs is None:
            lane.running.pop(offset, None)  # the worker stops; whoever has the partition next meets this record again
        elif (work := lane.running.get(offset)) is not None:
            self.seconds.observe(asyncio.get_running_loop().time() - work.started)
            lane.finish(offset, outputs)
            self._pump()

    async def _await_together(self, lane: Lane, together: Together) -> None:
        first = together.offsets[0]
        outputs: Mapping[int, Outputs] | None
        try:
            outputs = await together.work()
        except asyncio.CancelledError:
            cut_off = self._cut_off(lane, first)
            if cut_off is None:
                return
            outputs = self._recovered_all(together, cut_off)
        except Exception as e:  # noqa: BLE001 - what records have in common costs these records
            outputs = self._recovered_all(together, e)
        if outputs is None:
            for offset in together.offsets:
                lane.running.pop(offset, None)
        elif (work := lane.running.get(first)) is not None:
            self.seconds.observe(asyncio.get_running_loop().time() - work.started)
            lane.finish_all({offset: outputs.get(offset, ()) for offset in together.offsets})
            self._release()
            self._pump()

    def _cut_off(self, lane: Lane, offset: int) -> Exception | None:
        """Why the running task was cancelled; None when the lane was dropped."""
        work, task = lane.running.get(offset), asyncio.current_task()
        if work is not None and work.overdue:
            return TimeoutError(f"no result within {self.settings.work_timeout_s:g} s")
        if work is not None and task is not None and not task.cancelling():
            return RuntimeError("the step was cancelled from within")  # something it waited for was, not this record
        return None

    def _recovered_all(self, together: Together, error: Exception) -> dict[int, Outputs] | None:
        found = {offset: self._recovered(record, error) for offset, record in together.records.items()}
        complete = {offset: outputs for offset, outputs in found.items() if outputs is not None}
        return complete if len(complete) == len(found) else None

    def _recovered(self, record: ConsumerRecord, error: Exception) -> Outputs | None:
        """The outputs of a record that went wrong; None, and the worker stops, when even those cannot be made."""
        self.counters.recovered += 1
        try:
            return self._recover(record, error)
        except Exception as e:  # noqa: BLE001 - without its failure event the record would be lost
            where = f"{record.topic}/{record.partition} offset {record.offset}"
            self._fatal(StopWorkerError(f"{where}: the failure {error!r} cannot be recorded: {e!r}"))
            return None

    def _committed(self, _lane: Lane, count: int) -> None:
        self.counters.finished += count
        self.counters.commits += 1
        self._note_idle()
        self._regulate()

    # --- flow control and deadlines --------------------------------------------------------------------------------

    def _regulate(self) -> None:
        """Pause the partitions that may not be read now, resume those that may."""
        flowing = not self._draining and self._may_start() and not self._full()
        wanted = {p for p, lane in self.lanes.items() if not (flowing and lane.is_open and lane.has_room(_ROOM))}
        if wanted != self._paused:
            self._pause(wanted - self._paused)
            self._required_source().resume(*(self._paused - wanted))
            self._paused = wanted

    def _pause(self, partitions: set[TopicPartition]) -> None:
        if partitions:
            self._required_source().pause(*partitions)
            self._paused |= partitions

    def close_gate(self) -> None:
        """Start nothing more; what runs goes on (the first half of a drain)."""
        self._shut = True
        self._regulate()

    def _may_start(self) -> bool:
        return not self._shut and self._gate()

    def _full(self) -> bool:
        """Queued records wait behind a full stage, finished ones behind a broker that takes none, or held ones fill it."""
        if self._keeper is not None and self._keeper.full:
            return True
        queued = sum(len(lane.queued) for lane in self.lanes.values())
        return queued >= MAX_FETCH or self.in_flight > 2 * self.settings.concurrency + 2 * MAX_FETCH

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_TICK_S)
            self._expire(loop.time() - self.settings.work_timeout_s)
            self._release()
            self._pump()
            self._regulate()

    def _release(self) -> None:
        """Take up what is held and need not wait any longer."""
        if self._keeper is None or self._draining:
            return
        quiet_since = asyncio.get_running_loop().time() - _QUIET_S
        for partition, lane in list(self.lanes.items()):
            caught_up = not lane.queued and partition not in self._paused and lane.fed_at <= quiet_since
            while lane.is_open and self.active < self.settings.concurrency and self._may_start():
                stuck = not lane.in_flight and not lane.has_room(_ROOM)
                try:
                    together = self._keeper.due(partition.partition, caught_up=caught_up, stuck=stuck)
                except StopWorkerError as e:
                    self._fatal(e)
                    return
                if together is None:
                    break
                self._run(lane, together.offsets, self._await_together(lane, together))

    def _expire(self, before: float) -> None:
        for lane in self.lanes.values():
            for work in lane.running.values():
                if work.started > before:
                    break  # dicts keep the order of insertion: the rest started later
                if not work.overdue:
                    work.overdue = True
                    work.task.cancel()

    # --- the end ---------------------------------------------------------------------------------------------------

    async def drain(self, timeout_s: float) -> int:
        """Start nothing more and let what runs finish; the number of records given up on after `timeout_s`.

        What is given up is not lost: its offsets are not committed, so it is done again by whoever has the partition.
        """
        self._draining = True
        for lane in self.lanes.values():
            lane.queued.clear()
        self._regulate()
        if self.busy:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._idle.wait()
            except TimeoutError:
                pass
        return self.busy

    def hurry(self) -> None:
        """End a drain now."""
        self._idle.set()

    async def close(self) -> None:
        """Drop everything and close the deliveries."""
        self._draining = self._closed = True
        lanes, self.lanes = list(self.lanes.values()), {}
        if self._clock is not None:
            self._clock.cancel()
        await asyncio.gather(*(self._drop(lane) for lane in lanes))
        await asyncio.gather(*self._tasks, return_exceptions=True)  # lanes that were lost just before; bounded by `Delivery`

    def _note_idle(self) -> None:
        if self._draining and not self.busy:
            self._idle.set()

    def _fatal(self, error: Exception) -> None:
        log.error("stage stops", stage=self.settings.name, error=str(error))
        self._draining = True
        if self._on_fatal is not None:
            self._on_fatal(error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _required_source(self) -> Source:
        if self._source is None:
            raise RuntimeError("the stage has no source yet")
        return self._source


def _by_partition(records: Sequence[ConsumerRecord]) -> Mapping[TopicPartition, list[ConsumerRecord]]:
    found: dict[TopicPartition, list[ConsumerRecord]] = {}
    for record in records:
        found.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
    return found
