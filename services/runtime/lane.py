"""One assigned partition: what was delivered, what is being worked on, what waits to be committed.

This is the heart of the pipeline. A record passes through four places, each a dict by offset:

    queued ──► running ──► outbox ──► committing ──► gone
      accept     take        finish     group commit

A step may hold a record back (`held`): it is neither worked on nor finished, just open, until it runs with others as one piece
of work whose outputs go into one commit.

Invariants:

- *Out of order inside, in order outside.* Work finishes in any order; what is committed is a `Position`: an offset below
  which everything is finished, and the finished set beyond it.
- *Group commit.* The outbox waits until the previous commit has ended and then goes as one. There is no timer: at low
  load the delay is one commit, at high load the batches grow.
- *Outputs and position are one.* An offset counts as finished only in the commit that carries its outputs.
- *Only an open lane accepts and commits.* Between revocation and assignment a lane is suspended: its work goes on, since
  most rebalances give the partition straight back, but nothing is accepted or committed. Opening reads what is committed
  and keeps just the work that nobody has finished meanwhile.
- *Nothing is accepted that might not fit into a commit.* A record for which the metadata has no room is left to be read
  again.
- *What is held outlives no opening.* It is read again, so a step that holds begins afresh with each opening.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from services.runtime.completion import Completion
from services.runtime.delivery import Delivery, Position
from services.runtime.record import ConsumerRecord, Outputs, TopicPartition

_CUT_TIMEOUT_S = 10.0
"""How long a commit that is cut off may take to let go."""


class LaneState(Enum):
    """Whether a lane may accept and commit."""

    SUSPENDED = "suspended"
    OPEN = "open"
    CLOSED = "closed"


class Memory(Protocol):
    """A step's memory of what it has handled, one partition at a time.

    `forget` comes when a partition opens, then `remember` for each record that is read again and needs no work; `forget`
    comes again when the partition has gone elsewhere. Neither may raise: the partition would stay where it is.
    """

    def forget(self, partition: int) -> None: ...
    def remember(self, record: ConsumerRecord) -> None: ...


@dataclass(slots=True)
class Work:
    """Records being worked on as one; `started` is loop time in seconds, `overdue` set when its deadline cancelled it."""

    offsets: Sequence[int]
    task: asyncio.Task[None]
    started: float
    overdue: bool = False


class Lane:
    """The records of one partition between delivery and commit.

    `read_from` is where reading began when the lane was opened, `read_next` where it goes on after what was accepted; None is
    the first record there is. `fed_at` is the loop time, in seconds, of the last batch or of the opening.

    `on_commit` is called after each commit with the number of records it finished, `on_error` when a commit raised;
    the lane is suspended by then and its uncommitted outputs are back in the outbox. `memory` is told
    what is finished. `in_order`: outputs must be committed in the order of the log, so an opening keeps no work from before.
    """

    def __init__(
        self,
        partition: TopicPartition,
        delivery: Delivery,
        *,
        on_commit: Callable[[Lane, int], None],
        on_error: Callable[[Lane, Exception], None],
        memory: Memory | None = None,
        in_order: bool = False,
    ) -> None:
        self.partition = partition
        self.state = LaneState.SUSPENDED
        self.epoch = 0
        self.read_from: int | None = None
        self.read_next: int | None = None
        self.fed_at = 0.0
        self.queued: dict[int, ConsumerRecord] = {}
        self.held: set[int] = set()
        self.running: dict[int, Work] = {}
        self.outbox: dict[int, Outputs] = {}
        self.committing: dict[int, Outputs] = {}
        self._delivery = delivery
        self._completion = Completion(Position())
        self._on_commit = on_commit
        self._on_error = on_error
        self._memory = memory
        self._in_order = in_order
        self._committer: asyncio.Task[None] | None = None
        self._refused: int | None = None

    @property
    def in_flight(self) -> int:
        """Records accepted, not held back and not yet committed."""
        return len(self.queued) + len(self.running) + len(self.outbox) + len(self.committing)

    @property
    def is_open(self) -> bool:
        return self.state is LaneState.OPEN

    def has_room(self, more: int) -> bool:
        """Whether `more` records could be delivered without outgrowing the commit's metadata."""
        return self._completion.has_room(more, self._refused)

    async def take_over(self) -> Position:
        """Fence the previous owner and read how far the partition is. Raises whatever the delivery raises.

        A commit still under way is cut off first: the position that is read says what became of it.
        """
        if self._committer is not None and not self._committer.done():
            self._committer.cancel()
            await asyncio.wait({self._committer}, timeout=_CUT_TIMEOUT_S)
            if not self._committer.done():
                raise TimeoutError(f"a commit of {self.partition} does not end")
        return await self._delivery.open()

    def open(self, position: Position, epoch: int, replay: int = 0) -> None:
        """Go on from `position`, keeping the work that nobody has finished meanwhile.

        `epoch` numbers this opening; `replay` is how far below the position reading begins.
        """
        self._completion = Completion(position)
        self._forget((lambda _: True) if self._in_order else self._completion.is_finished)
        if not self._completion.can_finish([*self.running, *self.outbox]):
            self._forget(lambda _: True)  # another owner went on meanwhile: together it might not fit into a commit
        self.queued.clear()  # these will be delivered again, in order
        self.held.clear()
        self._refused = None
        if self._memory is not None:
            self._memory.forget(self.partition.partition)
        self.epoch = epoch
        self.read_from = self.read_next = None if position.offset is None else max(0, position.offset - replay)
        self.state = LaneState.OPEN
        self._wake_committer()

    def behind(self, end: int) -> int | None:
        """Offsets before `end` that are not finished; None before the first delivery where nothing was ever committed."""
        position = self._completion.position()
        return None if position.offset is None else max(0, end - position.offset - position.finished.bit_count())

    def accept(self, records: Iterable[ConsumerRecord]) -> int | None:
        """Queue delivered records, leaving out those that are finished or still held from before a rebalance.

        Answers None, or the offset of the first record for which there was no room: it and what follows were left out
        and must be read again, once `has_room` is true.
        """
        self._refused = self._queue(records)
        self._wake_committer()  # outputs kept from before may have waited to learn where the partition begins
        return self._refused

    def _queue(self, records: Iterable[ConsumerRecord]) -> int | None:
        for record in records:
            offset = record.offset
            if not self._completion.has_room(1, offset):
                self.read_next = offset
                return offset
            self.read_next = offset + 1
            if self._completion.deliver(offset) and not self._holds(offset):
                self.queued[offset] = record
            elif self._memory is not None:
                self._memory.remember(record)
        return None

    def take(self) -> ConsumerRecord | None:
        """The next queued record, in order of offset."""
        for offset in self.queued:
            return self.queued.pop(offset)
        return None

    def hold(self, offset: int) -> None:
        """Note that a record is held back."""
        self.held.add(offset)

    def run(self, work: Work) -> None:
        """Note that records are being worked on."""
        self.held.difference_update(work.offsets)
        self.running.update(dict.fromkeys(work.offsets, work))

    def finish(self, offset: int, outputs: Outputs) -> None:
        """Note that the work on a record is done; its outputs go with the next commit."""
        self.finish_all({offset: outputs})

    def finish_all(self, outputs: Mapping[int, Outputs]) -> None:
        """Note that the work on records is done; all their outputs go with the next commit."""
        for offset in outputs:
            self.running.pop(offset, None)
        if self.state is not LaneState.CLOSED:
            self.outbox.update(outputs)
            self._wake_committer()

    def shut(self) -> None:
        """Accept nothing more and begin no commit, until the lane is opened again."""
        if self.state is LaneState.OPEN:
            self.state = LaneState.SUSPENDED

    async def suspend(self, timeout_s: float) -> None:
        """Stop accepting and committing; waits up to `timeout_s` for a commit that is under way."""
        self.shut()
        if self._committer is not None:
            await asyncio.wait({self._committer}, timeout=timeout_s)

    async def close(self) -> None:
        """Drop everything: the partition belongs to another worker, or this one stops."""
        self.state = LaneState.CLOSED
        self._forget(lambda _: True)
        self.queued.clear()
        self.held.clear()
        if self._committer is not None:
            self._committer.cancel()
        await self._delivery.close()

    def _holds(self, offset: int) -> bool:
        return offset in self.running or offset in self.outbox or offset in self.committing or offset in self.held

    def _forget(self, unwanted: Callable[[int], bool]) -> None:
        for work in {id(w): w for o, w in self.running.items() if unwanted(o)}.values():
            work.task.cancel()
            for offset in work.offsets:  # those that were wanted are read again: work on a part is no work
                self.running.pop(offset, None)
        self.outbox = {o: out for o, out in self.outbox.items() if not unwanted(o)}

    def _wake_committer(self) -> None:
        idle = self._committer is None or self._committer.done()
        if idle and self.outbox and self.state is LaneState.OPEN and self._completion.is_placed:
            self._committer = asyncio.get_running_loop().create_task(self._commit_all())

    async def _commit_all(self) -> None:
        """Commit until the outbox is empty, everything that has gathered at a time."""
        while self.outbox and self.state is LaneState.OPEN:
            self.committing, self.outbox = self.outbox, {}
            try:
                await self._commit(self.committing)
            except asyncio.CancelledError:
                self._put_back()
                raise
            except Exception as e:  # noqa: BLE001 - whatever a delivery raises, the lane must open again before it goes on
                self._put_back()
                self._on_error(self, e)
                return
            done, self.committing = len(self.committing), {}
            self._on_commit(self, done)

    async def _commit(self, finished: dict[int, Outputs]) -> None:
        for offset in finished:
            self._completion.finish(offset)
        outputs = [out for outs in finished.values() for out in outs]
        await self._delivery.commit(outputs, self._completion.position())

    def _put_back(self) -> None:
        self.shut()
        self.outbox = self.committing | self.outbox
        self.committing = {}
