import asyncio
import importlib.util
import pathlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.models.endpoint import BreakerSettings, ModelEndpoint, RetryBudget
from services.models.gate import EndpointDownError, Gate, Outcome

_spec = importlib.util.spec_from_file_location("virtual_loop", pathlib.Path(__file__).with_name("virtual_loop.py"))
virtual_loop = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(virtual_loop)
run = virtual_loop.run


def gate(bound=2, *, failures=3, patience=100.0):
    endpoint = ModelEndpoint(
        base_url="http://h/v1",
        name="m",
        max_concurrency=bound,
        breaker=BreakerSettings(failures=failures, cool_down_s=1, max_cool_down_s=8),
        retries=RetryBudget(max_elapsed_s=patience),
    )
    return Gate(endpoint, asyncio.get_running_loop())


def test_places_go_first_come_first_served():
    async def main():
        g, order = gate(1), []

        async def call(n):
            ticket = await g.enter(1000)
            order.append(n)
            await asyncio.sleep(1)
            g.leave(ticket, Outcome.ANSWERED)

        await asyncio.gather(*(call(n) for n in range(20)))
        assert order == list(range(20))
        assert (g.in_flight, g.waiting) == (0, 0)
        assert asyncio.get_running_loop().time() == pytest.approx(20)

    run(main())


def test_waiting_ends_at_the_deadline_and_frees_the_queue():
    async def main():
        g = gate(1)
        ticket = await g.enter(10)
        with pytest.raises(TimeoutError):
            await g.enter(5)
        assert asyncio.get_running_loop().time() == 5
        assert (g.in_flight, g.waiting) == (1, 0)
        g.leave(ticket, Outcome.ANSWERED)
        assert g.try_enter() is not None

    run(main())


def test_a_place_granted_to_a_cancelled_call_goes_to_the_next():
    async def main():
        g = gate(1)
        ticket = await g.enter(10)
        first, second = asyncio.create_task(g.enter(10)), asyncio.create_task(g.enter(10))
        await asyncio.sleep(0)
        g.leave(ticket, Outcome.ANSWERED)  # grants to `first` …
        first.cancel()  # … which is cancelled before it runs
        assert await second is not None
        assert isinstance((await asyncio.gather(first, return_exceptions=True))[0], asyncio.CancelledError)
        assert g.in_flight == 1

    run(main())


def test_retry_after_shuts_the_gate_for_everybody_until_it_is_over():
    async def main():
        g = gate(10)
        loop = asyncio.get_running_loop()
        tickets = [await g.enter(100) for _ in range(4)]
        g.leave(tickets[0], Outcome.OVERLOADED, 7.0)
        assert g.limiter.allowance == 2
        assert g.try_enter() is None
        for t in tickets[1:]:
            g.leave(t, Outcome.ANSWERED)
        await g.enter(100)
        assert loop.time() == 7

    run(main())


def test_a_shorter_pause_is_not_slept_through_behind_a_longer_cool_down():
    async def main():
        g = gate(10, failures=1)
        loop = asyncio.get_running_loop()
        old, bad = await g.enter(100), await g.enter(100)
        for _ in range(3):  # cool-down 1, 2, 4: the timer now stands at 7
            g.leave(bad, Outcome.UNREACHABLE)
            bad = await g.enter(100)
        g.leave(bad, Outcome.UNREACHABLE)
        waiting = asyncio.create_task(g.enter(100))
        await asyncio.sleep(0)
        start = loop.time()
        g.leave(old, Outcome.OVERLOADED, 0.5)  # the endpoint lives after all, but wants half a second
        await waiting
        assert loop.time() - start == pytest.approx(0.5)

    run(main())


def test_a_dead_endpoint_is_probed_by_one_and_not_stormed():
    async def main():
        g, loop, tries, dead = gate(1000), asyncio.get_running_loop(), [], True

        async def call():
            while True:
                ticket = await g.enter(1000)
                tries.append(loop.time())
                await asyncio.sleep(0.01)
                g.leave(ticket, Outcome.UNREACHABLE if dead else Outcome.ANSWERED)
                if not dead:
                    return

        calls = [asyncio.create_task(call()) for _ in range(500)]
        await asyncio.sleep(30)
        assert sum(1 for t in tries if t > 0.5) <= 6  # 1, 2, 4, 8, 8 …: probes only
        dead = False
        await asyncio.gather(*calls)
        assert loop.time() < 40

    run(main())


def test_everybody_at_a_dead_endpoint_ends_within_the_budget_and_one_cool_down():
    async def main():
        g, loop = gate(100, failures=1, patience=20), asyncio.get_running_loop()

        async def call():
            g.leave(await g.enter(10_000), Outcome.UNREACHABLE)

        ended = await asyncio.gather(*(call() for _ in range(50)), return_exceptions=True)
        assert sum(isinstance(e, EndpointDownError) for e in ended) >= 40  # the others were the probes
        assert {type(e) for e in ended} == {EndpointDownError, type(None)}
        assert 20 <= loop.time() <= 20 + 8
        assert (g.in_flight, g.waiting) == (0, 0)

    run(main())


def test_a_connected_probe_lets_the_others_in_before_it_is_answered():
    async def main():
        g = gate(10, failures=1)
        g.leave(await g.enter(10), Outcome.UNREACHABLE)
        probe = await g.enter(10)
        assert probe.probe
        waiting = asyncio.create_task(g.enter(10))
        await asyncio.sleep(0)
        assert not waiting.done()
        g.connected()
        assert not (await waiting).probe

    run(main())


def test_silence_is_counted_only_while_somebody_waits():
    async def main():
        g, loop = gate(1), asyncio.get_running_loop()
        await asyncio.sleep(50)
        assert g.silence(loop.time()) == 0
        ticket = await g.enter(1000)
        await asyncio.sleep(5)
        assert g.silence(loop.time()) == 5
        queued = asyncio.create_task(g.enter(1000))
        await asyncio.sleep(0)
        g.leave(ticket, Outcome.SILENT)
        await asyncio.sleep(2)
        assert g.silence(loop.time()) == 7
        g.leave(await queued, Outcome.ANSWERED)
        assert g.silence(loop.time()) == 0

    run(main())


def test_close_turns_the_waiting_away():
    async def main():
        g = gate(1)
        await g.enter(10)
        waiting = asyncio.create_task(g.enter(10))
        await asyncio.sleep(0)
        g.close()
        with pytest.raises(EndpointDownError, match="closed"):
            await waiting

    run(main())


CALL = st.tuples(
    st.floats(0, 20),  # arrives
    st.sampled_from(list(Outcome)),
    st.floats(0, 5),  # takes
    st.none() | st.floats(0.1, 3),  # pause asked
    st.none() | st.floats(0, 15),  # cancelled after
)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.lists(CALL, min_size=1, max_size=40))
def test_no_wake_up_is_lost_and_the_bound_holds(bound, calls):
    async def main():
        g, loop, most = gate(bound, failures=2, patience=1e5), asyncio.get_running_loop(), 0

        async def call(arrives, outcome, takes, pause):
            nonlocal most
            await asyncio.sleep(arrives)
            ticket = await g.enter(1e5)
            most = max(most, g.in_flight)
            end = Outcome.SILENT
            try:
                await asyncio.sleep(takes)
                end = outcome
            finally:
                g.leave(ticket, end, pause)

        tasks = []
        for arrives, outcome, takes, pause, cancel in calls:
            tasks.append(asyncio.create_task(call(arrives, outcome, takes, pause)))
            if cancel is not None:
                loop.call_later(cancel, tasks[-1].cancel)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert all(t.cancelled() or t.exception() is None for t in tasks), "somebody waited for ever"
        assert most <= bound
        assert (g.in_flight, g.waiting) == (0, 0)

    run(main(), budget_s=5_000)
