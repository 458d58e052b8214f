"""Many owners of one partition, killed, stopped and fenced at arbitrary points, against one clean run.

A replica waits before each effect it has on the world (a commit, a put, a look whether a file is there) until the
schedule lets it go on, lets it fail before or after the effect, or kills it. Old owners are not told that they are: they
go on whenever the schedule says so, as a process does that was stopped and continued.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import headers
from services.runtime import position_codec
from services.runtime.delivery import FencedError, Position, StopWorkerError
from services.runtime.record import Outgoing, TopicPartition
from services.sink.directory import Directory, DirectoryDelivery, FlushLimits
from services.sink.step import FAILURES, OFFSET, RESULTS
from services.sink.whole_files import UNNAMED

TP = TopicPartition("rollstream.scored-rollouts", 3)
GO, FAIL_BEFORE, FAIL_AFTER, KILL = "go", "fail before", "fail after", "kill"


def outgoing(offset: int, run: str, kind: str) -> Outgoing:
    made = ((headers.RUN, run.encode()), (OFFSET, b"%d" % offset))
    return Outgoing(RESULTS if kind == "result" else FAILURES, None, b"%s-%d" % (kind.encode(), offset), made)


@dataclass
class Record:
    offset: int
    outputs: Sequence[Outgoing]


@dataclass
class World:
    """Kafka's side of one partition, and the store."""

    log: list[Record]
    committed: Position = field(default_factory=Position)
    epoch: int = 0
    files: dict[str, bytes] = field(default_factory=dict)
    waiting: dict[int, asyncio.Future[str]] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def lines(self) -> dict[tuple[str, str], list[bytes]]:
        """Lines by run and kind of file, in order of file name."""
        found: dict[tuple[str, str], list[bytes]] = {}
        for name in sorted(self.files):
            run, _, file = name.partition("/")
            found.setdefault((run, file[: file.index("-00003-")]), []).extend(self.files[name].splitlines())
        return found

    def expected(self, below: int | None = None) -> dict[tuple[str, str], list[bytes]]:
        found: dict[tuple[str, str], list[bytes]] = {}
        for record in self.log:
            for out in record.outputs:
                if below is None or record.offset < below:
                    run = (headers.value(out.headers, headers.RUN) or b"").decode()
                    kind = "scored-rollouts" if out.topic == RESULTS else "failures-scored-rollouts"
                    found.setdefault((UNNAMED if "/" in run else run, kind), []).append(out.value)
        return found

    async def turn(self, replica: int) -> str:
        self.waiting[replica] = asyncio.get_running_loop().create_future()
        return await self.waiting[replica]

    async def act(self, replica: int, effect: Any, error: type[Exception]) -> Any:
        order = await self.turn(replica)
        if order == FAIL_BEFORE:
            raise error("before")
        result = effect()
        if order == FAIL_AFTER:
            raise error("after")
        return result


class Kafka:
    """A transactional delivery: opening fences all earlier owners."""

    def __init__(self, world: World, replica: int) -> None:
        self.world, self.replica, self.epoch = world, replica, -1

    async def open(self) -> Position:
        return await self.world.act(self.replica, self._open, TimeoutError)

    async def commit(self, outputs: Sequence[Outgoing], position: Position) -> None:
        assert not outputs
        await self.world.act(self.replica, lambda: self._commit(position), TimeoutError)

    async def close(self) -> None: ...

    def _open(self) -> Position:
        self.world.epoch += 1
        self.epoch = self.world.epoch
        return self.world.committed

    def _commit(self, position: Position) -> None:
        if self.epoch != self.world.epoch:
            raise FencedError
        assert position.offset is not None
        if position.offset < (self.world.committed.offset or 0):
            self.world.violations.append(f"an owner went back from {self.world.committed} to {position}")
        self.world.committed = position_codec.decode(position.offset, position_codec.encode(position))


class WatchedStore:
    where = "store"

    def __init__(self, world: World, replica: int) -> None:
        self.world, self.replica = world, replica

    async def exists(self, name: str) -> bool:
        return bool(await self.world.act(self.replica, lambda: name in self.world.files, OSError))

    async def put(self, name: str, data: bytes) -> None:
        await self.world.act(self.replica, lambda: self._put(name, data), OSError)

    def _put(self, name: str, data: bytes) -> None:
        if self.world.files.setdefault(name, data) != data:
            self.world.violations.append(f"{name} was written again with other content")


async def never(_: float) -> None:
    await asyncio.Event().wait()


@dataclass(frozen=True)
class Habits:
    """How a replica batches, and when it flushes by its clock."""

    batches: Sequence[int]
    flush_after: Sequence[bool]
    lines: int


def directory_delivery(world: World, number: int, lines: int) -> DirectoryDelivery:
    directory = Directory(
        "",
        lambda _: Kafka(world, number),
        limits=FlushLimits(lines, 1 << 20, 1.0),
        store=WatchedStore(world, number),
        sleep=never,
    )
    return directory.delivery(TP)


async def live(world: World, number: int, habits: Habits) -> bool:
    """One owner of the partition, as a lane drives its delivery. True when it got to the end of the log."""
    delivery = directory_delivery(world, number, habits.lines)
    while True:
        try:
            position = await delivery.open()
            at = sum(r.offset < (position.offset or 0) for r in world.log)
            for i in range(len(world.log)):
                batch = world.log[at : at + habits.batches[i % len(habits.batches)]]
                if not batch:
                    break
                at += len(batch)
                await delivery.commit([o for r in batch for o in r.outputs], Position(batch[-1].offset + 1))
                if habits.flush_after[i % len(habits.flush_after)]:
                    await delivery.flush()
            await delivery.close()
            return world.committed.offset == world.log[-1].offset + 1
        except FencedError:
            return False
        except StopWorkerError as e:
            if "is there already" in str(e):
                world.violations.append(str(e))
            return False
        except TimeoutError:
            continue


class Schedule:
    def __init__(self, world: World) -> None:
        self.world = world
        self.tasks: list[asyncio.Task[bool]] = []

    async def start(self, habits: Habits) -> int:
        number = len(self.tasks)
        self.tasks.append(asyncio.create_task(live(self.world, number, habits)))
        await self.settle()
        return number

    async def settle(self) -> None:
        while any(  # noqa: ASYNC110 - turns of the loop, not time
            not t.done() and (n not in self.world.waiting or self.world.waiting[n].done()) for n, t in enumerate(self.tasks)
        ):
            await asyncio.sleep(0)

    async def step(self, number: int, order: str) -> None:
        if self.tasks[number].done():
            return
        if order == KILL:
            self.tasks[number].cancel()
            await asyncio.wait({self.tasks[number]})
        else:
            self.world.waiting[number].set_result(order)
            await asyncio.sleep(0)
            await self.settle()
        self.check()

    def check(self) -> None:
        """Whatever is committed is in files, and no owner has done what it must not."""
        assert not self.world.violations
        below = self.world.committed.offset
        if below is not None:
            lines = self.world.lines()
            for key, expected in self.world.expected(below).items():
                assert lines.get(key, [])[: len(expected)] == expected


records = st.lists(
    st.tuples(
        st.integers(1, 4),  # how far from the offset before: gaps of control records
        st.sampled_from(["", "a", "a", "b", "../b"]),  # no line: another run's record
        st.sampled_from(["result", "result", "failure"]),
    ),
    min_size=1,
    max_size=14,
)
habits = st.builds(
    Habits,
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.lists(st.booleans(), min_size=1, max_size=4),
    st.integers(1, 6),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 3), st.sampled_from([GO, GO, GO, GO, GO, GO, FAIL_BEFORE, FAIL_AFTER, KILL])),
        st.builds(lambda h: (-1, h), habits),
    ),
    max_size=60,
)


def log_of(shape: Sequence[tuple[int, str, str]]) -> list[Record]:
    offset, log = -1, []
    for gap, run, kind in shape:
        offset += gap
        log.append(Record(offset, (outgoing(offset, run, kind),) if run else ()))
    return log


async def play(shape: Sequence[tuple[int, str, str]], schedule: Sequence[Any], last: Habits) -> World:
    world = World(log_of(shape))
    play = Schedule(world)
    for number, order in schedule:
        if number == -1 or not play.tasks:
            await play.start(order if isinstance(order, Habits) else last)
        else:
            await play.step(max(0, len(play.tasks) - 1 - number), order)
    for _ in range(2):  # the first may find that an old owner, stepped by nobody, still fences nobody
        final = await play.start(last)
        while not play.tasks[final].done():
            await play.step(final, GO)
        assert play.tasks[final].result()
    for number, task in enumerate(play.tasks):  # every stopped process wakes up
        while not task.done():
            await play.step(number, GO)
    return world


@pytest.mark.timeout(300)
@pytest.mark.parametrize("examples", [100, pytest.param(1_000, marks=pytest.mark.slow)])
def test_whatever_happens_every_line_is_in_the_files_once(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(records, steps, habits)
    def whatever_happens(shape: Any, schedule: Any, last: Habits) -> None:
        world = asyncio.run(play(shape, schedule, last))
        assert world.lines() == world.expected()

    whatever_happens()


SHAPE = [(1, "a", "result"), (3, "b", "result"), (1, "", "result"), (2, "a", "failure"), (1, "a", "result"), (4, "b", "result")]
SLOW, FAST = Habits([2], [True], 100), Habits([6], [False], 100)


@pytest.mark.parametrize("order", [KILL, FAIL_BEFORE, FAIL_AFTER])
def test_one_fault_at_every_point(order: str) -> None:
    """Every effect of a run in turn: killed there, or failed before or after it; the next owner batches differently."""
    for at in range(40):
        schedule = [(-1, SLOW), *[(0, GO)] * at, (0, order)]
        world = asyncio.run(play(SHAPE, schedule, FAST))
        assert world.lines() == world.expected(), at


@pytest.mark.parametrize("order", [GO, FAIL_BEFORE, FAIL_AFTER])
def test_a_stopped_owner_wakes_up_at_every_point(order: str) -> None:
    """The first owner stops before effect n and wakes, or hears that it failed, when the next has done m of its own."""
    for n in range(16):
        for m in range(16):
            schedule = [(-1, SLOW), *[(0, GO)] * n, (-1, FAST), *[(0, GO)] * m, (1, order), *[(1, GO)] * 20]
            world = asyncio.run(play(SHAPE, schedule, SLOW))
            assert world.lines() == world.expected(), (n, m)
