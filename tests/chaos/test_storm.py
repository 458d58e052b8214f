"""Kills, stops and an outage while rollouts run: none is lost, none is twice (issue: 20,000 in the slow variant)."""

from __future__ import annotations

import asyncio
import dataclasses
import time

import pytest

from tests.chaos.account import account_of, all_once, directory_lines, lines_of, rollouts
from tests.chaos.havoc import Havoc, Weather, say
from tests.chaos.traffic import Tail, send

pytestmark = pytest.mark.chaos

RUN = "storm"
AFTER_S = 90.0
"""For what is left when the storm is over: a session timeout, a rebalance, and the work."""


async def storm(broker, topics, crew, rng, tasks, weather, *, single_only=False, at_least_once=False):
    """Two workers of each stage, the sink in both forms, `tasks` prompts of two rollouts over the time of the storm."""
    kafka, out = broker.connection, crew.folder
    if at_least_once:
        crew.settings = {**crew.settings, "delivery": "at_least_once"}
    model = crew.model("--latency", "uniform:0.05:0.6", "--vary-by-key")
    two = [lambda: crew.worker("agent", "--model", model), lambda: crew.worker("tool"), lambda: crew.worker("verifier")] * 2
    directory = [] if single_only else [lambda: crew.worker("sink", "--output", f"{out}/files/")] * 2
    single = [lambda: crew.worker("sink", "--output", f"{out}/one.jsonl", "--run", RUN)]
    havoc = Havoc([*two, *directory, *single], rng, weather, broker)
    await havoc.start()
    async with Tail(kafka, topics) as tail:
        sending = asyncio.create_task(send(kafka, topics, RUN, tasks, over_s=weather.lasts_s * 0.9))
        await havoc.blow()
        expected = await sending
        left, calm = len(expected) - tail.count, time.monotonic()
        while tail.count < len(expected):
            assert time.monotonic() < calm + AFTER_S, (
                f"{tail.count} of {len(expected)} rollouts; {[p.tail(4) for p in havoc.pool]}"
            )
            await asyncio.sleep(0.1)
    say(f"{left} left after the storm, done in {time.monotonic() - calm:.1f} s")
    await havoc.pool[-1].until(lambda: len(rollouts(lines_of(out / "one.jsonl"))) == len(expected), "the file is whole")
    codes = await havoc.calm()
    account = await account_of(kafka, topics, RUN, at_least_once=at_least_once)
    say(account.describe())
    say(f"{len(expected)} rollouts, {havoc.kills} kills, {havoc.stops} stops, {havoc.outages} outages")
    assert codes == [0] * len(codes), [p.tail() for p in havoc.pool if p.code]
    assert havoc.own_ends == []
    assert (havoc.stops, havoc.outages) == (weather.stops, 1)
    return expected, account


def check(expected, account, folder, *, directory=True):
    assert account.failures == [], account.describe()
    assert account.ledger.balanced, account.describe()
    assert account.ledger.total.scored == account.ledger.total.dispatched == len(expected), account.describe()
    all_once(expected, account.scored, "scored-rollouts")
    all_once(expected, rollouts(lines_of(folder / "one.jsonl")), "the single file")
    if directory:
        all_once(expected, rollouts(directory_lines(folder / "files", RUN)), "the directory")


@pytest.mark.timeout(240)
async def test_nothing_is_lost_and_nothing_is_twice(own_broker, own_topics, own_crew, rng):
    expected, account = await storm(own_broker, own_topics, own_crew, rng, 1_000, Weather(lasts_s=38))
    check(expected, account, own_crew.folder)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_nothing_is_lost_and_nothing_is_twice_over_20_000_rollouts(own_broker, own_topics, own_crew, rng):
    weather = Weather(stop_s=20, outage_s=20, lasts_s=150)
    expected, account = await storm(own_broker, own_topics, own_crew, rng, 10_000, weather)
    check(expected, account, own_crew.folder)


@pytest.mark.timeout(240)
async def test_at_least_once_loses_nothing_and_the_file_has_each_once(own_broker, own_topics, own_crew, rng):
    """Repeats may be on the topics; the ledger books them beside, and the single file drops them by identity."""
    weather = dataclasses.replace(Weather(), lasts_s=24, stops=1, stop_s=10)
    expected, account = await storm(own_broker, own_topics, own_crew, rng, 500, weather, single_only=True, at_least_once=True)
    assert account.ledger.balanced, account.describe()
    assert account.ledger.total.scored == len(expected), account.describe()
    assert account.scored.keys() == expected
    all_once(expected, rollouts(lines_of(own_crew.folder / "one.jsonl")), "the single file")
