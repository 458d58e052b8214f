"""A broker on paper for tests of the core: a log, a group's positions, who fenced whom. Everything is decided by the test.

`World` holds what a broker would keep. `ScriptedDelivery` makes work durable in it, with failures and delays on demand.
`ScriptedSource` is a consumer: it reads what is assigned and not paused, from where it was told.
"""

import asyncio
import bisect
import functools
from collections import deque
from dataclasses import dataclass, field

from unit.models.virtual_loop import run as run_virtually

from services.runtime import position_codec
from services.runtime.delivery import FencedError, Position
from services.runtime.record import ConsumerRecord, Outgoing, TopicPartition
from services.runtime.stage import MAX_FETCH, Stage, StageSettings

TOPIC = "in"
P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


def virtually(test):
    """Run an async test in virtual time: waiting costs none."""

    @functools.wraps(test)
    def wrapped(*args, **kwargs):
        run_virtually(test(*args, **kwargs), budget_s=100_000)

    return wrapped


def record(offset, partition=P0, value=None):
    value = value if value is not None else b"%d/%d" % (partition.partition, offset)
    return ConsumerRecord(partition.topic, partition.partition, offset, 0, 0, b"key", value, None, 3, len(value), ())


def records(*offsets, partition=P0):
    return [record(o, partition) for o in offsets]


def output_of(a_record):
    return [Outgoing("out", a_record.key, a_record.value)]


@dataclass
class World:
    """What outlives a worker. `outputs` are committed values, in order; `commits` what each commit held."""

    log: dict[TopicPartition, list[ConsumerRecord]] = field(default_factory=dict)
    committed: dict[TopicPartition, tuple[int, str]] = field(default_factory=dict)
    outputs: list[bytes] = field(default_factory=list)
    commits: list[tuple[TopicPartition, list[bytes], Position]] = field(default_factory=list)
    owner: dict[TopicPartition, object] = field(default_factory=dict)
    opened: list[TopicPartition] = field(default_factory=list)
    closed: list[object] = field(default_factory=list)
    commit_script: deque = field(default_factory=deque)
    open_script: deque = field(default_factory=deque)
    commit_delay_s: float = 0.01

    def produce(self, count, partition=P0, gap=0):
        log = self.log.setdefault(partition, [])
        for _ in range(count):
            log.append(record(log[-1].offset + 1 + gap if log else 0, partition))

    def values(self, partition=None):
        return [r.value for p, log in self.log.items() for r in log if partition in (None, p)]

    def position(self, partition=P0):
        if partition not in self.committed:
            return Position()
        return position_codec.decode(*self.committed[partition])

    def delivery(self, partition):
        return ScriptedDelivery(self, partition)


class ScriptedDelivery:
    """Each entry of a script is awaited or raised in the place of one call; `after=True` on an error: the broker has it."""

    def __init__(self, world, partition):
        self.world, self.partition = world, partition

    async def open(self):
        self.world.owner[self.partition] = self
        await _play(self.world.open_script)
        self.world.opened.append(self.partition)
        return self.world.position(self.partition)

    async def commit(self, outputs, position):
        entry = self.world.commit_script.popleft() if self.world.commit_script else None
        if entry is not None and not getattr(entry, "after", False):
            await _act(entry)
        await asyncio.sleep(self.world.commit_delay_s)
        if self.world.owner.get(self.partition) is not self:
            raise FencedError("another producer has the id")
        self._apply(outputs, position)
        if entry is not None and getattr(entry, "after", False):
            await _act(entry)

    def _apply(self, outputs, position):
        metadata = position_codec.encode(position)
        assert len(metadata) <= position_codec.MAX_METADATA
        self.world.committed[self.partition] = (position.offset, metadata)
        values = [o.value for o in outputs]
        self.world.outputs += values
        self.world.commits.append((self.partition, values, position))

    async def close(self):
        self.world.closed.append(self)


def lost_answer(error):
    """A failure after the broker has the commit."""
    error.after = True
    return error


async def _play(script):
    if script:
        await _act(script.popleft())


async def _act(entry):
    if isinstance(entry, BaseException):
        raise entry
    await entry()


class ScriptedSource:
    """A consumer of the world's log. Never waits: `fetch` gives what there is."""

    def __init__(self, world):
        self.world = world
        self.assigned = set()
        self.paused = set()
        self.at = {}
        self.seeks = []
        self.seek_script = deque()
        self.first_kept = 0

    def pause(self, *partitions):
        self.paused |= set(partitions) & self.assigned

    def resume(self, *partitions):
        self.paused -= set(partitions)

    async def seek(self, partition, offset):
        await _play(self.seek_script)
        self.seeks.append((partition, offset))
        self.at[partition] = offset or 0

    async def earliest(self, partition):
        return self.first_kept

    def end(self, partition):
        log = self.world.log.get(partition)
        return log[-1].offset + 1 if log else None

    def assign(self, *partitions):
        """As aiokafka does: pauses end with the old assignment, reading goes on at the committed offset."""
        self.assigned, self.paused = set(partitions), set()
        self.at = {p: self.world.committed.get(p, (0, ""))[0] for p in partitions}

    def fetch(self, most=MAX_FETCH):
        batch = []
        for p in sorted(self.assigned - self.paused):
            log = self.world.log.get(p, [])
            begin = bisect.bisect_left(log, self.at[p], key=lambda r: r.offset)
            found = log[begin : begin + most - len(batch)]
            if found:
                self.at[p] = found[-1].offset + 1
            batch += found
        return batch


class Member:
    """A worker's stage with its source: joins, is revoked, reads."""

    def __init__(self, world, step, *, concurrency=10, work_timeout_s=60.0, recover=None, replay=0, **more):
        self.world = world
        self.source = ScriptedSource(world)
        self.stage = Stage(
            StageSettings("test", concurrency, work_timeout_s, replay),
            step,
            recover or (lambda r, e: [Outgoing("failures", r.key, r.value)]),
            more.pop("deliveries", world.delivery),
            **more,
        )
        self.stage.attach(self.source)
        self.stage.start()

    async def join(self, *partitions):
        """A rebalance that ends with these partitions, and the lanes open."""
        await self.rebalance(*partitions)
        await until(lambda: self.stage.ready)

    async def rebalance(self, *partitions):
        await self.stage.revoked(set(self.source.assigned))
        self.settle(*partitions)

    def settle(self, *partitions):
        self.source.assign(*partitions)
        self.stage.assign(set(partitions))

    async def read(self, rounds=1):
        """Fetch and deliver, as the subscriber does."""
        for _ in range(rounds):
            batch = self.source.fetch()
            if batch:
                await self.stage.receive(batch)
            else:
                await asyncio.sleep(0.02)

    async def read_until(self, ready, timeout_s=600):
        async with asyncio.timeout(timeout_s):
            while not ready():
                await self.read()
                await asyncio.sleep(0.001)

    async def kill(self):
        """Nothing is drained and nothing committed any more."""
        await self.stage.close()


async def until(ready, timeout_s=120, every_s=0.001):
    async with asyncio.timeout(timeout_s):
        while not ready():  # noqa: ASYNC110 - in virtual time, and the condition is the test's
            await asyncio.sleep(every_s)
