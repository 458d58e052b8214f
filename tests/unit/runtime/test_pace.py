"""A turnstile for bursts: few in each iteration of the loop, in order, and nobody is left behind."""

import asyncio

from services.runtime.pace import Pace


async def iterations(pace, count):
    """In which iteration each of `count` tasks passes."""
    now = 0
    passed = []

    async def enter(number):
        await pace.enter()
        passed.append((now, number))

    tasks = [asyncio.create_task(enter(i)) for i in range(count)]
    while not all(t.done() for t in tasks):
        now += 1
        await asyncio.sleep(0)
    return passed


async def test_a_burst_passes_in_slices_and_in_order():
    passed = await iterations(Pace(4), 10)
    assert [number for _, number in passed] == list(range(10))
    per_iteration = [sum(when == n for when, _ in passed) for n in sorted({when for when, _ in passed})]
    assert max(per_iteration) <= 4
    assert len(per_iteration) == 3


async def test_few_pass_at_once_again_and_again():
    pace = Pace(4)
    for _ in range(3):
        assert len({when for when, _ in await iterations(pace, 4)}) == 1


async def test_one_that_is_cancelled_takes_nobodys_place():
    pace = Pace(1)
    first, second, third = (asyncio.create_task(pace.enter()) for _ in range(3))
    await asyncio.sleep(0)
    second.cancel()
    async with asyncio.timeout(1):
        await asyncio.gather(first, third)
    assert second.cancelled()
