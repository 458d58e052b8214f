"""Calls of a code-execution server over HTTP.

Owns the client's side of the protocol of NeMo-Skills' local sandbox (math_formal_lean.md, "The Lean sandbox protocol"): POST a
request object to `/execute`, a reply object comes back. Invariant: whatever the server or the connection does becomes a reply
(`process_status`, `stdout`, `stderr`), never an exception, and at most `concurrency` requests are open at a time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from schemas import jsontext
from schemas.errors import InfrastructureError
from services.models.masking import Masker

MAX_REPLY_BYTES = 16 << 20
"""Servers cut output at `max_output_characters`; one that does not is not to fill this worker's memory."""

_BAD_GATEWAY = 502


class HttpCodeServer:
    """A `CodeServer` at `url`, the address that `/execute` is added to. Belongs to the loop that starts it.

    A proxy's login in the URL is never shown: error texts are masked.
    """

    def __init__(self, url: str, *, concurrency: int = 64, connect_timeout_s: float = 10.0) -> None:
        self._url = f"{url.rstrip('/')}/execute"
        self._masker = Masker([p for p in (urlsplit(url).password,) if p])
        self._room = asyncio.Semaphore(concurrency)
        self._connect_timeout_s = connect_timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Open the connection pool."""
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def execute(self, request: Mapping[str, Any], *, timeout_s: float) -> Mapping[str, Any]:
        """The server's reply to `request`; `timeout_s` counts from when the request may be sent, not while others are open.

        Raises `InfrastructureError` when this client was not started: that is neither the server nor the connection.
        """
        session = self._session
        if session is None:
            raise InfrastructureError("the code server's client was not started", retryable=False)
        async with self._room:
            try:
                return await self._post(session, request, timeout_s)
            except TimeoutError:
                return failed("Client timed out", "timeout")
            except (aiohttp.ClientError, OSError, ValueError) as e:
                return failed(self._masker.excerpt(str(e) or type(e).__name__))

    async def _post(self, session: aiohttp.ClientSession, request: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(timeout_s, self._connect_timeout_s))
        headers = {"Content-Type": "application/json"}
        async with session.post(self._url, data=jsontext.dumps(request), headers=headers, timeout=timeout) as reply:
            if reply.status == _BAD_GATEWAY:
                return failed("Sandbox 502 error")
            body = await _limited(reply)
        return read_reply(body)


def read_reply(body: bytes) -> Mapping[str, Any]:
    """The object in a reply's body, whatever its HTTP status; a body that holds none is a failed call."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else failed("Invalid JSON response")


def failed(stderr: str, status: str = "error") -> dict[str, Any]:
    """The reply that stands for a call that did not work."""
    return {"process_status": status, "stdout": "", "stderr": stderr}


async def _limited(reply: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in reply.content.iter_any():
        body += chunk
        if len(body) > MAX_REPLY_BYTES:
            raise ValueError(f"the reply is larger than {MAX_REPLY_BYTES:,} bytes")
    return bytes(body)
