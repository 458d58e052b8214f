"""The code server's client against a real HTTP server: every way a call can end is a reply."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from schemas.errors import InfrastructureError
from services.code_server import client as module
from services.code_server.client import HttpCodeServer, read_reply

REQUEST = {"generated_code": "theorem t : 1 = 1 := rfl -- π", "language": "lean4", "timeout": 30.0}


@asynccontextmanager
async def served(handler: Callable[[web.Request], Awaitable[web.StreamResponse]], **options) -> AsyncIterator[HttpCodeServer]:
    app = web.Application()
    app.router.add_post("/execute", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    client = HttpCodeServer(f"http://127.0.0.1:{port}/", **options)
    await client.start()
    try:
        yield client
    finally:
        await client.close()
        await runner.cleanup()


async def test_the_request_is_sent_as_json_and_the_reply_comes_back_as_it_is():
    seen = []

    async def handler(request):
        seen.append(json.loads(await request.read()))
        return web.json_response({"process_status": "completed", "stdout": "ok", "stderr": "", "more": 1})

    async with served(handler) as server:
        reply = await server.execute(REQUEST, timeout_s=5)
    assert seen == [REQUEST]
    assert reply == {"process_status": "completed", "stdout": "ok", "stderr": "", "more": 1}


@pytest.mark.parametrize(
    ("status", "body", "reply"),
    [
        (502, "bad gateway", {"process_status": "error", "stdout": "", "stderr": "Sandbox 502 error"}),
        (200, "oops", {"process_status": "error", "stdout": "", "stderr": "Invalid JSON response"}),
        (200, "[1]", {"process_status": "error", "stdout": "", "stderr": "Invalid JSON response"}),
        (500, '{"error": "boom"}', {"error": "boom"}),
        (500, '{"process_status": "completed"}', {"process_status": "completed"}),
    ],
)
async def test_http_answers(status, body, reply):
    async def handler(_):
        return web.Response(status=status, text=body)

    async with served(handler) as server:
        assert await server.execute(REQUEST, timeout_s=5) == reply


async def test_a_server_that_does_not_answer_in_time():
    release = asyncio.Event()

    async def handler(_):
        await release.wait()
        return web.Response()

    async with served(handler) as server:
        reply = await server.execute(REQUEST, timeout_s=0.05)
        release.set()
    assert reply == {"process_status": "timeout", "stdout": "", "stderr": "Client timed out"}


async def test_nobody_listens_and_the_password_is_not_told():
    client = HttpCodeServer("http://user:very-secret@127.0.0.1:1")
    await client.start()
    reply = await client.execute(REQUEST, timeout_s=5)
    await client.close()
    assert reply["process_status"] == "error"
    assert "127.0.0.1" in reply["stderr"]
    assert "very-secret" not in reply["stderr"]


@pytest.mark.parametrize("url", ["http://", "no-scheme", "ftp://x"])
async def test_an_address_that_is_none_is_an_error_reply(url):
    client = HttpCodeServer(url)
    await client.start()
    reply = await client.execute(REQUEST, timeout_s=5)
    await client.close()
    assert reply["process_status"] == "error"
    assert reply["stderr"]


async def test_a_dropped_connection_and_an_endless_reply(monkeypatch):
    monkeypatch.setattr(module, "MAX_REPLY_BYTES", 1000)

    async def handler(request):
        if b"drop" in await request.read():
            request.transport.close()
            return web.Response()
        return web.Response(body=b"x" * 5000)

    async with served(handler) as server:
        dropped = await server.execute({"generated_code": "drop"}, timeout_s=5)
        endless = await server.execute(REQUEST, timeout_s=5)
    assert dropped["process_status"] == endless["process_status"] == "error"
    assert "larger than" in endless["stderr"]


async def test_no_more_requests_are_open_than_allowed():
    open_now, most, arrived = 0, 0, asyncio.Semaphore(0)
    release = asyncio.Event()

    async def handler(_):
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        arrived.release()
        await release.wait()
        open_now -= 1
        return web.json_response({})

    async with served(handler, concurrency=3) as server:
        calls = [asyncio.ensure_future(server.execute(REQUEST, timeout_s=5)) for _ in range(9)]
        for _ in range(3):
            await arrived.acquire()
        release.set()
        assert await asyncio.gather(*calls) == [{}] * 9
    assert most == 3


async def test_a_client_that_was_not_started_is_our_mistake():
    with pytest.raises(InfrastructureError, match="not started"):
        await HttpCodeServer("http://127.0.0.1:1").execute(REQUEST, timeout_s=1)


@pytest.mark.parametrize("body", [b"", b"\xff", b"[" * 100_000, b"null", b'"text"'])
def test_bodies_that_hold_no_object(body):
    assert read_reply(body)["stderr"] == "Invalid JSON response"
