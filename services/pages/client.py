"""Getting pages of the web.

Owns what is asked of other people's servers: few requests at a time, a page once as long as it is remembered, one more try
after a failure or a 429. Invariant: bounded in time, bytes and memory; a page is had whole or not at all.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from urllib.parse import urlsplit

import aiohttp

from schemas.errors import InfrastructureError

CONCURRENCY = 8
"""Requests at once in one worker. Wikimedia asks for moderation from readers that are programs."""

TRIES = 2
PAUSE_S = 1.0
"""Before the second try."""

MAX_PAGE_BYTES = 8 << 20
CACHE_CHARS = 64 << 20

USER_AGENT = "rollstream/0.1 (reinforcement-learning rollouts; one reader of pages)"
"""Wikimedia refuses clients that do not say what they are."""

_TOO_MANY = 429
_SERVER_ERROR = 500
_CLIENT_ERROR = 400


class HttpPages:
    """A `Pages` client with a cache in memory. Belongs to the loop that starts it."""

    def __init__(self, *, cache_chars: int = CACHE_CHARS, pause_s: float = PAUSE_S) -> None:
        self._cache: OrderedDict[str, str] = OrderedDict()
        self._cache_chars, self._held = cache_chars, 0
        self._pause_s = pause_s
        self._room = asyncio.Semaphore(CONCURRENCY)
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Open the connection pool."""
        self._session = aiohttp.ClientSession(headers={"User-Agent": USER_AGENT}, max_field_size=1 << 16)

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def get(self, url: str, *, timeout_s: float) -> str:
        """The text at `url`; `timeout_s` bounds each try. Raises `InfrastructureError`."""
        if url in self._cache:
            self._cache.move_to_end(url)
            return self._cache[url]
        async with self._room:
            text = await self._tried(url, timeout_s)
        self._remember(url, text)
        return text

    async def _tried(self, url: str, timeout_s: float) -> str:
        problem = ""
        for number in range(TRIES):
            if number:
                await asyncio.sleep(self._pause_s)
            try:
                return await self._once(url, timeout_s)
            except _AgainError as e:
                problem = str(e)
            except TimeoutError:
                problem = f"no answer within {timeout_s:g} s"
            except (aiohttp.ClientError, OSError, ValueError) as e:
                problem = str(e) or type(e).__name__
        raise InfrastructureError(f"{urlsplit(url).netloc} could not be read: {problem[:500]}")

    async def _once(self, url: str, timeout_s: float) -> str:
        session = self._session
        if session is None:
            raise InfrastructureError("the client for pages was not started", retryable=False)
        async with session.get(url, timeout=aiohttp.ClientTimeout(total=timeout_s)) as reply:
            if reply.status == _TOO_MANY or reply.status >= _SERVER_ERROR:
                raise _AgainError(f"HTTP {reply.status}")
            if reply.status >= _CLIENT_ERROR:
                raise InfrastructureError(f"{urlsplit(url).netloc} answered HTTP {reply.status}", retryable=False)
            body = bytearray()
            async for chunk in reply.content.iter_any():
                body += chunk
                if len(body) > MAX_PAGE_BYTES:
                    raise InfrastructureError(f"a page is larger than {MAX_PAGE_BYTES:,} bytes: {url[:200]}", retryable=False)
            return body.decode(reply.get_encoding(), "replace")

    def _remember(self, url: str, text: str) -> None:
        if url in self._cache or len(text) > self._cache_chars:
            return
        self._cache[url] = text
        self._held += len(text)
        while self._held > self._cache_chars:
            _, old = self._cache.popitem(last=False)
            self._held -= len(old)


class _AgainError(Exception):
    """A try that may go better the next time."""
