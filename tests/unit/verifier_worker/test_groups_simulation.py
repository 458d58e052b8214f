"""Groups in a stage, in virtual time: whatever is killed, each group is committed once and as a whole; and ten thousand of them,
each with a straggler at the end of the log, in bounded memory."""

from __future__ import annotations

import asyncio
import random
import tracemalloc
from collections import Counter

import pytest
from unit.models.virtual_loop import run as run_virtually
from unit.runtime.scripted import P0, P1, Member, World
from unit.runtime.test_stage_simulation import PARTITIONS, Group

from schemas.errors import Outcome
from services.runtime.record import ConsumerRecord, Outgoing
from services.runtime.shelf import Shelf
from services.verifier_worker.groups import Arrival, GroupBounds, Groups, Why

SIZE = 4


def made(partition, offset, task, index, size=0):
    value = b"%d/%d/%d" % (partition.partition, task, index)
    return ConsumerRecord(partition.topic, partition.partition, offset, 0, 0, b"k", value.ljust(size), None, 1, 1, ())


def verifier(world, shelf, rng, *, size=SIZE, concurrency=40, delays_s=(0.0, 0.1, 1.0), timeout_s=1e9):
    """A member whose step is the groups; what is scored is the record's value and how much of the group was there."""
    whys = Counter()

    async def score(closed):
        whys[closed.why] += 1
        await asyncio.sleep(rng.choice(delays_s))
        note = b"|%d" % len(closed.present)
        return {r.offset: [Outgoing("out", r.key, r.value.strip() + note)] for r in closed.present}

    groups = Groups(GroupBounds(timeout_s, 100_000), shelf, score, lambda _: False, lambda: asyncio.get_running_loop().time())

    def step(record):
        _, task, index = record.value.split(b"/")
        answer = groups.add(record, Arrival(("r", f"{record.partition}/{int(task)}"), int(index), 0, size))
        return [Outgoing("out", b"k", record.value + b"|repeated")] if isinstance(answer, Outcome) else answer

    member = Member(
        world, step, concurrency=concurrency, keeper=groups, recover=lambda r, e: [Outgoing("out", b"k", repr(e).encode())]
    )
    member.groups, member.whys = groups, whys
    return member


class Verifiers(Group):
    """The workers of `test_stage_simulation`, with their accidents, over a log of groups whose members lie far apart."""

    def __init__(self, seed, folder):
        super().__init__(seed)
        self.folder = folder
        for p in PARTITIONS:
            members = [(task, index) for task in range(100) for index in range(SIZE)]
            members.sort(key=lambda m: m[0] + self.rng.random() * 60)
            gaps = iter(range(10_000))
            self.world.log[p] = [made(p, 2 * i + next(gaps) % 2, *m) for i, m in enumerate(members)]

    def new_member(self):
        rng = random.Random(self.rng.random())
        shelf = Shelf(20_000, 1 << 20, self.folder)  # some of it on disk
        self.members.append(verifier(self.world, shelf, rng, concurrency=rng.choice((4, 40))))


@pytest.mark.parametrize("round_", range(8))
def test_each_group_is_committed_once_and_as_a_whole_whatever_happens(rng, round_, tmp_path):
    group = Verifiers(rng.random(), tmp_path)
    run_virtually(group.live(), budget_s=100_000)
    world = group.world
    assert sorted(world.outputs) == sorted(v + b"|4" for v in world.values()), "each once, none without its siblings"
    for _, values, _ in world.commits:
        tasks = Counter(v.rsplit(b"/", 1)[0] for v in values)
        assert set(tasks.values()) <= {SIZE}
    for p in PARTITIONS:
        assert not group.unfinished(p)


class Log:
    """Records made when they are read, so that the log itself takes no memory: first all but one of each group, then the rest."""

    def __init__(self, partition, groups, size, payload, rng):
        first = [(task, index) for task in range(groups) for index in range(size - 1)]
        last = [(task, size - 1) for task in range(groups)]
        rng.shuffle(first)
        rng.shuffle(last)
        self._partition, self._order, self._payload = partition, first + last, payload

    def __len__(self):
        return len(self._order)

    def __getitem__(self, at):
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        return made(self._partition, at, *self._order[at], self._payload)


async def read_all(world, member, partitions, total):
    await member.join(*partitions)
    most = 0
    async with asyncio.timeout(100_000):
        while len(world.outputs) < total:
            await member.read()
            await asyncio.sleep(0.001)
            most = max(most, member.stage.in_flight)
    return most


@pytest.mark.timeout(180)
def test_ten_thousand_groups_with_a_straggler_each_in_bounded_memory(rng, tmp_path):
    world, payload = World(), 8_192
    for p in (P0, P1):
        world.log[p] = Log(p, 5_000, 2, payload, rng)
    shelf = Shelf(8 << 20, 1 << 30, tmp_path)

    async def live():
        member = verifier(world, shelf, rng, size=2, concurrency=64, delays_s=(0.0,))
        most = await read_all(world, member, (P0, P1), 20_000)
        await member.kill()
        return member, most

    tracemalloc.start()
    try:
        member, most = run_virtually(live(), budget_s=1e6)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert Counter(v.rsplit(b"|", 1)[1] for v in world.outputs) == {b"2": 20_000}
    assert len(set(world.outputs)) == 20_000
    assert member.whys == {Why.COMPLETE: 10_000}
    assert most < 4_000, "what waits is not in flight"
    assert peak < 50 << 20, f"{peak >> 20} MiB; the 10,000 records that wait have {10_000 * payload >> 20} MiB"
    assert (shelf.memory, shelf.disk, member.groups.count) == (0, 0, 0)


@pytest.mark.timeout(180)
def test_more_open_offsets_than_a_commit_can_tell_of_lose_nothing_and_stop_nothing(rng):
    world = World()
    world.log[P0] = Log(P0, 7_500, SIZE, 0, rng)

    async def live():
        member = verifier(world, Shelf(1 << 30, 0), rng, concurrency=64, delays_s=(0.0,), timeout_s=10_000)
        await read_all(world, member, (P0,), 30_000)
        await member.kill()
        return member

    member = run_virtually(live(), budget_s=1e6)
    assert sorted(v.rsplit(b"|", 1)[0] for v in world.outputs) == sorted(r.value for r in world.log[P0][:])
    assert member.whys[Why.ROOM] > 0
