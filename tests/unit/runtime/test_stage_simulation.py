"""A group of workers in virtual time: rebalances, kills, stalls, failing commits, slow records. Every record comes out once.

A stall is a member that the group goes on without: it is told of nothing, keeps working on what it has, and hears of the
rebalances only when it is back. What it had fetched by then is delivered to it afterwards, as happens after SIGCONT.
"""

import asyncio
import random

import pytest
from unit.models.virtual_loop import run as run_virtually
from unit.runtime.scripted import P0, P1, Member, World, lost_answer, output_of

P2 = P0._replace(partition=2)
PARTITIONS = (P0, P1, P2)
RECORDS = 3_000  # a partition; with a control record here and there


class Group:
    """The coordinator's part, and the accidents."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.world = World(commit_delay_s=0.02)
        for p in PARTITIONS:
            for _ in range(RECORDS // 10):
                self.world.produce(10, p, gap=self.rng.choice((0, 0, 1)))
        self.members, self.stalled = [], []

    def new_member(self):
        rng = random.Random(self.rng.random())

        async def slow(a_record):
            await asyncio.sleep(rng.choice((0.0, 0.01, 0.1, 3.0 if rng.random() < 0.02 else 0.2)))
            if rng.random() < 0.01:
                raise ValueError("a bad record")
            return output_of(a_record)

        def step(a_record):
            return output_of(a_record) if rng.random() < 0.3 else slow(a_record)

        member = Member(self.world, step, concurrency=rng.choice((3, 40, 200)), recover=lambda r, e: output_of(r))
        self.members.append(member)

    async def rebalance(self):
        here = [m for m in self.members if m not in self.stalled]
        await asyncio.gather(*(m.stage.revoked(set(m.source.assigned)) for m in here))
        await asyncio.sleep(self.rng.choice((0, 0.05, 1)))
        shuffled = self.rng.sample(PARTITIONS, len(PARTITIONS))
        for i, m in enumerate(here):
            m.settle(*shuffled[i :: len(here)])

    async def kill(self):
        victim = self.rng.choice(self.members)
        self.members.remove(victim)
        if victim in self.stalled:
            self.stalled.remove(victim)
        await victim.kill()
        if not self.members or self.rng.random() < 0.8:
            self.new_member()
        await self.wake_one_if_alone()
        await self.rebalance()

    async def stall(self):
        if len(self.members) - len(self.stalled) > 1:
            victim = self.rng.choice([m for m in self.members if m not in self.stalled])
            victim.in_hand = victim.source.fetch()
            self.stalled.append(victim)
            await self.rebalance()

    async def wake(self):
        if self.stalled:
            victim = self.stalled.pop(self.rng.randrange(len(self.stalled)))
            await asyncio.sleep(self.rng.choice((0, 0.5)))
            late = self.rng.choice(("before", "between", "after"))
            if late == "before":
                await victim.stage.receive(victim.in_hand)
            await victim.stage.revoked(set(victim.source.assigned))
            if late == "between":
                await victim.stage.receive(victim.in_hand)
            await self.rebalance()
            await asyncio.sleep(self.rng.choice((0, 0.1)))
            if late == "after":
                await victim.stage.receive(victim.in_hand)

    async def wake_one_if_alone(self):
        if len(self.stalled) == len(self.members):
            await self.wake()

    async def break_a_commit(self):
        error = self.rng.choice((RuntimeError, TimeoutError, OSError))("broken")
        self.world.commit_script.append(self.rng.choice((error, lost_answer(error), lambda: asyncio.sleep(8))))

    async def break_an_opening(self):
        self.world.open_script.append(self.rng.choice((OSError("away"), lambda: asyncio.sleep(self.rng.random() * 5))))

    async def read_for(self, seconds):
        """Every member that is awake reads as its subscriber would."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            await asyncio.gather(*(m.read() for m in self.members if m not in self.stalled))
            await asyncio.sleep(0.01)

    def unfinished(self, partition):
        """Offsets of records that the committed position does not call finished."""
        position = self.world.position(partition)
        beyond = set(position.beyond)
        return [r.offset for r in self.world.log[partition] if r.offset >= (position.offset or 0) and r.offset not in beyond]

    async def live(self):
        self.new_member()
        await self.rebalance()
        accidents = (self.rebalance, self.kill, self.stall, self.wake, self.wake, self.break_a_commit, self.break_an_opening)
        for _ in range(60):
            await self.read_for(self.rng.choice((0.1, 0.5, 2.0)))
            await self.rng.choice(accidents)()
        while self.stalled:
            await self.wake()
        self.world.commit_script.clear()
        self.world.open_script.clear()
        await self.rebalance()
        for _ in range(100):
            await self.read_for(10)
            if not any(self.unfinished(p) for p in PARTITIONS):
                break
        for m in self.members:
            await m.stage.close()


@pytest.mark.parametrize("round_", range(12))
def test_every_record_comes_out_once_whatever_happens(rng, round_):
    group = Group(rng.random())
    run_virtually(group.live(), budget_s=100_000)
    world = group.world
    assert sorted(world.outputs) == sorted(world.values()), "each record once: none lost, none doubled"
    for p in PARTITIONS:
        assert not group.unfinished(p)
