"""The client for pages against a real HTTP server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from schemas.errors import InfrastructureError
from services.pages import client as module
from services.pages.client import HttpPages


@asynccontextmanager
async def served(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]], **options
) -> AsyncIterator[tuple[HttpPages, str]]:
    app = web.Application()
    app.router.add_get("/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    client = HttpPages(pause_s=0.0, **options)
    await client.start()
    try:
        yield client, f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await client.close()
        await runner.cleanup()


async def test_a_page_is_asked_for_once_and_redirects_are_followed():
    asked = []

    async def handler(request):
        asked.append((request.path_qs, "rollstream" in request.headers["User-Agent"]))
        if request.path == "/old":
            raise web.HTTPFound("/new")
        return web.Response(body="é€".encode("utf-16"), content_type="text/html", charset="utf-16")

    async with served(handler) as (pages, url):
        assert [await pages.get(f"{url}/old?search=%5BA%5D+b", timeout_s=5) for _ in range(3)] == ["é€"] * 3
    assert len(asked) == 2
    assert asked[0][1]


@pytest.mark.parametrize(
    ("statuses", "fine"), [([429, 200], True), ([503, 200], True), ([500, 500, 200], False), ([404, 200], False)]
)
async def test_one_more_try_after_a_failure_that_may_pass(statuses, fine):
    left = list(statuses)

    async def handler(_):
        return web.Response(status=left.pop(0), text="page")

    async with served(handler) as (pages, url):
        if fine:
            assert await pages.get(url, timeout_s=5) == "page"
        else:
            with pytest.raises(InfrastructureError, match="HTTP"):
                await pages.get(url, timeout_s=5)
            assert await pages.get(url, timeout_s=5) == "page"  # a failure is not remembered


async def test_slow_large_and_absent_servers(monkeypatch):
    monkeypatch.setattr(module, "MAX_PAGE_BYTES", 1000)
    release = asyncio.Event()

    async def handler(request):
        if request.path == "/large":
            return web.Response(body=b"x" * 2000)
        await release.wait()
        return web.Response()

    async with served(handler) as (pages, url):
        with pytest.raises(InfrastructureError, match=r"no answer within 0\.05 s"):
            await pages.get(f"{url}/slow", timeout_s=0.05)
        release.set()
        with pytest.raises(InfrastructureError, match="larger than"):
            await pages.get(f"{url}/large", timeout_s=5)
        with pytest.raises(InfrastructureError, match="could not be read"):
            await pages.get("http://127.0.0.1:1/", timeout_s=5)
    with pytest.raises(InfrastructureError, match="not started"):
        await HttpPages().get(url, timeout_s=5)


async def test_the_memory_for_pages_is_bounded():
    asked = []

    async def handler(request):
        asked.append(request.path)
        return web.Response(text="p" * (500 if request.path == "/big" else 40))

    async with served(handler, cache_chars=100) as (pages, url):
        for path in ("/a", "/b", "/a", "/c", "/a", "/b", "/big", "/big", "/b"):
            await pages.get(url + path, timeout_s=5)
    assert asked == ["/a", "/b", "/c", "/b", "/big", "/big"]
