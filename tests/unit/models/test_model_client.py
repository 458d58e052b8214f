"""The policy client against the scripted server and raw sockets: each line of the fault table for the model."""

import asyncio
import json
import socket
import sys
import time
from email.utils import formatdate

import orjson
import pytest
from structlog.testing import capture_logs

from rollstream.scripted import Fault, FaultKind, Options, ScriptedModel
from schemas.errors import FailureClass, ModelError, RolloutTimeout
from services.models.client import PolicyClient
from services.models.endpoint import ModelEndpoint

KEY = "an-unusual-secret-123456"
BODY = orjson.dumps({"model": "scripted", "input": "Say something."})


def client_of(base_url, **settings):
    settings = {"retries": {"max_attempts": 4}, "api_key": KEY} | settings
    endpoint = ModelEndpoint(base_url=base_url, name="scripted", **settings)
    return PolicyClient(endpoint, uniform=lambda low, _high: low)  # no jitter: a retry comes at once


async def until(true):
    """Wait for something that the loop is about to do; the test's time limit bounds it."""
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


async def outcome_of(faults, *, deadline_s=None, options=None, body=BODY, **settings):
    """What a call ends with (reply or error), the client's snapshot, and the requests that the server saw."""
    async with ScriptedModel(options, faults=faults, record=True) as model, client_of(model.base_url, **settings) as client:
        deadline = None if deadline_s is None else asyncio.get_running_loop().time() + deadline_s
        try:
            ended = await client.create(body, idempotency_key="run/0-0/0/0", deadline=deadline)
        except (ModelError, RolloutTimeout) as e:
            ended = e
        return ended, client.snapshot(), model.seen


async def test_a_plain_call():
    reply, snapshot, seen = await outcome_of([])
    assert reply.body["output"][0]["role"] == "assistant"
    assert json.loads(reply.raw) == reply.body
    assert reply.attempts == 1
    assert 0 < reply.latency_s < 10
    assert seen[0].body == BODY
    assert seen[0].authorization == f"Bearer {KEY}"
    assert (snapshot.calls, snapshot.answered, snapshot.in_flight, snapshot.retries) == (1, 1, 0, {})


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 520])
async def test_statuses_that_may_pass_are_tried_again_under_one_key(status):
    reply, snapshot, seen = await outcome_of([Fault(status=status)] * 2)
    assert reply.attempts == 3
    assert [s.key for s in seen] == ["run/0-0/0/0"] * 3
    assert snapshot.retries == {str(status): 2}
    assert snapshot.retried_calls == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410, 413, 422, 501, 302])
async def test_other_statuses_are_final(status):
    error, snapshot, seen = await outcome_of([Fault(status=status, body=f"no, not with {KEY}")])
    assert isinstance(error, ModelError)
    assert error.failure_class is FailureClass.MODEL
    assert not error.retryable
    assert f"HTTP {status}" in str(error)
    assert "no, not with ***" in error.detail
    assert KEY not in str(error) + error.detail
    assert len(seen) == 1
    assert snapshot.failures == {str(status): 1}


async def test_500_for_ever_ends_with_the_budget():
    error, snapshot, seen = await outcome_of([Fault(status=500, body="boom")] * 9)
    assert isinstance(error, ModelError)
    assert error.retryable
    assert "4 of 4 tries" in str(error)
    assert "boom" in error.detail
    assert len(seen) == 4
    assert snapshot.in_flight == 0


async def test_429_waits_as_long_as_the_server_asks():
    started = time.monotonic()
    reply, snapshot, _ = await outcome_of([Fault(status=429, retry_after="0.4")])
    assert reply.attempts == 2
    assert 0.4 <= time.monotonic() - started < 5
    assert snapshot.allowance == 1  # halved: one was in flight


async def test_retry_after_as_a_date_and_its_cap():
    reply, _, _ = await outcome_of([Fault(status=429, retry_after=formatdate(time.time() - 60, usegmt=True))])
    assert reply.attempts == 2
    retries = {"max_attempts": 4, "retry_after_cap_s": 0.1}
    reply, _, _ = await outcome_of([Fault(status=503, retry_after="86400")], retries=retries)
    assert reply.attempts == 2


async def test_a_wait_that_the_deadline_forbids_ends_the_call_at_once():
    started = time.monotonic()
    error, _, _ = await outcome_of([Fault(status=429, retry_after="60", body="slow down")], deadline_s=5)
    assert time.monotonic() - started < 4
    assert isinstance(error, RolloutTimeout)
    assert "HTTP 429" in str(error)
    assert "slow down" in error.detail


async def test_a_wait_that_the_budget_forbids_ends_the_call_at_once():
    retries = {"max_attempts": 4, "max_elapsed_s": 5}
    error, _, _ = await outcome_of([Fault(status=429, retry_after="60")], retries=retries)
    assert isinstance(error, ModelError)
    assert error.retryable


async def test_retry_after_of_one_call_pauses_the_others():
    async with ScriptedModel(faults=[Fault(status=429, retry_after="0.5")]) as model, client_of(model.base_url) as client:
        first = asyncio.create_task(client.create(BODY, idempotency_key="a"))
        await until(lambda: client.snapshot().retries)
        reply = await client.create(BODY, idempotency_key="b")
        assert reply.latency_s > 0.3
        assert reply.attempts == 1
        await first


@pytest.mark.parametrize("kind", [FaultKind.GARBAGE, FaultKind.NOT_A_RESPONSE, FaultKind.NAN])
async def test_200_with_garbage_is_tried_again_then_a_model_error(kind):
    reply, snapshot, _ = await outcome_of([Fault(kind=kind, body=f"<html>{KEY}</html>")])
    assert reply.attempts == 2
    assert snapshot.retries == {"garbage": 1}
    error, _, seen = await outcome_of([Fault(kind=kind, body=f"<html>{KEY}</html>")] * 4)
    assert isinstance(error, ModelError)
    assert len(seen) == 4
    assert error.detail
    assert KEY not in error.detail
    assert len(error.detail) < 1100


async def test_a_refused_body_is_explained_by_the_openai_type():
    error, _, _ = await outcome_of([Fault(kind=FaultKind.NOT_A_RESPONSE)] * 4)
    assert "right API" in str(error)
    assert "output: Field required" in error.detail or "Field required" in error.detail


@pytest.mark.parametrize("kind", [FaultKind.CLOSE, FaultKind.CUT])
async def test_lost_connections_are_tried_again(kind):
    reply, snapshot, _ = await outcome_of([Fault(kind=kind)] * 2)
    assert reply.attempts == 3
    assert sum(snapshot.retries.values()) == 2


async def test_connection_refused_is_a_model_error_after_the_budget(unused_tcp_port):
    async with client_of(f"http://127.0.0.1:{unused_tcp_port}/v1") as client:
        with pytest.raises(ModelError) as e:
            await client.create(BODY, idempotency_key="k")
        assert "no connection" in str(e.value)
        assert e.value.retryable
        assert client.snapshot().retries == {"connect": 3}


async def test_an_unknown_host_is_a_model_error():
    async with client_of("http://no-such-host.invalid/v1", retries={"max_attempts": 1}) as client:
        with pytest.raises(ModelError, match="no connection"):
            await client.create(BODY, idempotency_key="k")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (FaultKind.HANG_BEFORE_HEADERS, "first_byte_timeout"),
        (FaultKind.HANG_AFTER_HEADERS, "body_timeout"),
        (FaultKind.TRICKLE, "body_timeout"),
    ],
)
async def test_a_hanging_server_costs_one_bounded_wait_per_try(kind, reason):
    timeouts = {"first_byte_s": 0.3, "body_s": 0.2}
    reply, snapshot, _ = await outcome_of([Fault(kind=kind)], timeouts=timeouts)
    assert reply.attempts == 2
    assert snapshot.retries == {reason: 1}
    error, snapshot, _ = await outcome_of([Fault(kind=kind)] * 2, timeouts=timeouts, retries={"max_attempts": 2})
    assert isinstance(error, RolloutTimeout)
    assert error.failure_class is FailureClass.TIMEOUT
    assert error.retryable
    assert snapshot.failures == {reason: 1}
    assert snapshot.in_flight == 0


async def test_an_answer_after_the_deadline_is_a_timeout_at_the_deadline():
    started = time.monotonic()
    error, _, _ = await outcome_of([Fault(kind=FaultKind.NONE, delay=600)], deadline_s=0.3)
    assert 0.3 <= time.monotonic() - started < 5
    assert isinstance(error, RolloutTimeout)
    assert "deadline passed" in str(error)


async def test_the_call_has_a_bound_of_its_own():
    error, _, _ = await outcome_of([Fault(kind=FaultKind.NONE, delay=600)], timeouts={"call_s": 0.2})
    assert isinstance(error, RolloutTimeout)


async def test_a_deadline_that_has_passed_calls_nobody():
    error, _, seen = await outcome_of([], deadline_s=-1)
    assert isinstance(error, RolloutTimeout)
    assert not seen


async def test_context_overflow_is_an_incomplete_reply():
    reply, snapshot, seen = await outcome_of([Fault(kind=FaultKind.OVERFLOW)])
    assert reply.body["incomplete_details"] == {"reason": "max_output_tokens"}
    assert reply.body["metadata"]["context_overflow"] == "true"
    assert json.loads(reply.raw) == reply.body
    assert len(seen) == 1
    assert snapshot.overflows == 1
    assert snapshot.answered == 1


async def test_lone_surrogates_null_usage_and_incomplete_replies_are_replies():
    kinds = [FaultKind.SURROGATE, FaultKind.USAGE_NULL, FaultKind.INCOMPLETE]
    replies = [(await outcome_of([Fault(kind=k)]))[0] for k in kinds]
    assert replies[0].body["output"][0]["content"][0]["text"].endswith("\ud83d")
    assert replies[1].body["usage"] is None
    assert replies[2].body["status"] == "incomplete"
    assert [r.attempts for r in replies] == [1, 1, 1]


async def test_a_reply_without_end_is_refused():
    error, snapshot, seen = await outcome_of([], options=Options(pad_bytes=300_000), max_reply_bytes=100_000)
    assert isinstance(error, ModelError)
    assert "100,000 bytes" in str(error)
    assert len(seen) == 1
    assert snapshot.in_flight == 0


async def test_large_bodies_go_both_ways():
    body = orjson.dumps({"model": "scripted", "input": "x" * 3_000_000})
    reply, _, seen = await outcome_of([Fault(status=500)], body=body, options=Options(pad_bytes=3_000_000))
    assert reply.attempts == 2
    assert [s.body for s in seen] == [body, body]
    assert len(reply.raw) > 3_000_000


async def test_no_more_calls_in_flight_than_allowed():
    model = ScriptedModel(Options.model_validate({"latency": {"seconds": 0.02}}))
    async with model, client_of(model.base_url, max_concurrency=3) as client:
        most = 0

        async def watch():
            nonlocal most
            while True:
                most = max(most, client.snapshot().in_flight)
                await asyncio.sleep(0)

        watcher = asyncio.create_task(watch())
        replies = await asyncio.gather(*(client.create(BODY, idempotency_key=str(i)) for i in range(30)))
        watcher.cancel()
        assert most == 3
        assert all(r.attempts == 1 for r in replies)


async def test_a_dead_server_is_not_stormed_and_found_again_when_it_is_back(unused_tcp_port):
    settings = {
        "breaker": {"failures": 3, "cool_down_s": 0.05, "max_cool_down_s": 0.1},
        "retries": {"max_attempts": 50, "max_elapsed_s": 30, "base_s": 0.01, "cap_s": 0.01},
    }
    async with client_of(f"http://127.0.0.1:{unused_tcp_port}/v1", **settings) as client:
        with capture_logs() as logs:
            calls = [asyncio.create_task(client.create(BODY, idempotency_key=str(i))) for i in range(200)]
            await until(lambda: client.snapshot().breaker == "open")
            before = sum(client.snapshot().retries.values())
            await asyncio.sleep(0.5)
            assert sum(client.snapshot().retries.values()) - before < 250  # without a breaker: 50 × 200
            async with ScriptedModel(port=unused_tcp_port):
                replies = await asyncio.wait_for(asyncio.gather(*calls), 20)
        assert len(replies) == 200
        assert client.snapshot().breaker == "closed"
        assert [e["event"] for e in logs if e["event"].startswith("model_")] == ["model_unreachable", "model_reachable_again"]


async def test_tries_waiting_to_connect_are_called_back_when_the_breaker_opens():
    """A host that swallows packets: those behind the first 64 must neither be sent nor lose a try."""
    settings = {
        "breaker": {"failures": 5, "cool_down_s": 30},
        "timeouts": {"connect_s": 0.2},
        "retries": {"max_attempts": 1},
    }
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)  # never accepts: the queue is full after one or two, and further connections hang
    fillers = [socket.socket() for _ in range(4)]
    for filler in fillers:
        filler.setblocking(False)
        filler.connect_ex(full.getsockname())
    async with client_of(f"http://127.0.0.1:{full.getsockname()[1]}/v1", **settings) as client:
        calls = [asyncio.create_task(client.create(BODY, idempotency_key=str(i))) for i in range(200)]
        await until(lambda: client.snapshot().breaker == "open")
        await until(lambda: client.snapshot().waiting + len([c for c in calls if c.done()]) == 200)
        snapshot = client.snapshot()
        assert sum(snapshot.failures.values()) <= 64 + 5  # those who began before the fifth failure
        assert snapshot.retries == {}
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert client.snapshot().in_flight == 0
    for each in (full, *fillers):
        each.close()


async def test_a_slow_probe_does_not_hold_up_the_rest(unused_tcp_port):
    settings = {
        "breaker": {"failures": 1, "cool_down_s": 0.05},
        "retries": {"max_attempts": 1000, "max_elapsed_s": 30, "base_s": 0.01, "cap_s": 0.01},
    }
    async with client_of(f"http://127.0.0.1:{unused_tcp_port}/v1", **settings) as client:
        calls = [asyncio.create_task(client.create(BODY, idempotency_key=str(i))) for i in range(20)]
        await until(lambda: client.snapshot().breaker == "open")
        async with ScriptedModel(Options.model_validate({"latency": {"seconds": 600}}), port=unused_tcp_port) as model:
            await until(lambda: model.requests == 20)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
        assert client.snapshot().in_flight == 0


async def test_a_silent_endpoint_raises_an_alarm_once_per_period():
    async with ScriptedModel(faults=[Fault(kind=FaultKind.NONE, delay=600)]) as model:
        with capture_logs() as logs:
            async with client_of(model.base_url, idle_alarm_s=0.2) as client:
                call = asyncio.create_task(client.create(BODY, idempotency_key="k"))
                await until(lambda: logs)
                call.cancel()
    assert [e["event"] for e in logs] == ["model_silent"]
    assert logs[0]["in_flight"] == 1
    assert logs[0]["log_level"] == "error"


async def test_a_cancelled_call_gives_its_place_back():
    model = ScriptedModel(faults=[Fault(kind=FaultKind.NONE, delay=600)])
    async with model, client_of(model.base_url, max_concurrency=1) as client:
        call = asyncio.create_task(client.create(BODY, idempotency_key="a"))
        await until(lambda: model.requests == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await client.create(BODY, idempotency_key="b")).attempts == 1


async def test_a_server_that_does_not_speak_http():
    async def babble(reader, writer):
        await reader.readline()
        writer.write(b"SSH-2.0-OpenSSH_9.9\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    async with server, client_of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1") as client:
        with pytest.raises(ModelError):
            await client.create(BODY, idempotency_key="k")


async def test_use_before_start_is_a_plain_error():
    client = client_of("http://127.0.0.1:1/v1")
    with pytest.raises(RuntimeError, match="start"):
        await client.create(BODY, idempotency_key="k")
    await client.close()


async def test_the_hot_path_does_not_import_openai():
    code = (
        "import asyncio, sys\n"
        "from services.models.client import PolicyClient\n"
        "from services.models.endpoint import ModelEndpoint\n"
        "assert 'openai' not in sys.modules\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    assert await process.wait() == 0
