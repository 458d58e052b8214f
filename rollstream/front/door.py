"""What every request passes before it reaches a route: where it may come from, how large it may be, which environment it means.

An ASGI application around the app. Invariants: a body is complete and within bounds before any route runs; a page in a browser
cannot reach a front that listens on the loopback, whatever name it gives to the address; a path that names no environment means
the one whose port it came to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rollstream.front.bounds import Bounds
from rollstream.front.problems import json_response

_LOCAL = "localhost"


@dataclass(frozen=True, slots=True)
class Paths:
    """Whose paths are whose: `names` begin a path of their own, `heads` belong to nobody, the rest to a port's environment."""

    names: Collection[str]
    heads: Collection[str]
    by_port: Mapping[int, str] = field(default_factory=dict)
    default: str | None = None

    def of(self, path: str, port: int | None) -> str:
        """The path with its environment in front."""
        first = path.lstrip("/").partition("/")[0]
        owner = self.by_port.get(port or 0, self.default)
        return path if owner is None or first in self.names or first in self.heads else f"/{owner}{path}"


class _Refused(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Door:
    """`local`: requests must name this machine as their host, and come from no page of another."""

    def __init__(self, app: ASGIApp, paths: Paths, bounds: Bounds, *, local: bool) -> None:
        self.app, self.paths, self.local = app, paths, local
        self._bounds = bounds
        self._buffered = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        parts: list[bytes] = []
        try:
            self._check_origin(headers)
            await self._read(parts, headers, receive)
            scope = {**scope, "path": self.paths.of(scope["path"], (scope.get("server") or (None, None))[1])}
            scope.pop("raw_path", None)
            await self.app(scope, _replayed(b"".join(parts), receive), send)
        except _Refused as e:
            kind = {"class": "capacity" if e.status in {413, 503} else "data", "type": "Refused"}
            refused = {"detail": str(e), "error": {**kind, "message": str(e), "retryable": e.status == 503}}  # noqa: PLR2004
            # What is left of the body is not read: the connection is of no more use.
            await json_response(refused, e.status, {"Connection": "close"})(scope, receive, send)
        finally:
            self._buffered -= sum(map(len, parts))

    def _check_origin(self, headers: Mapping[str, str]) -> None:
        if not self.local:
            return
        host = headers.get("host", "")
        origin = headers.get("origin")
        if not _is_local(f"//{host}"):
            raise _Refused(421, f"this front serves its own machine; Host {host!r} is another")
        if origin is not None and not _is_local(origin):
            raise _Refused(403, f"this front serves its own machine; a page of {origin!r} may not call it")

    async def _read(self, parts: list[bytes], headers: Mapping[str, str], receive: Receive) -> None:
        bounds = self._bounds
        declared = headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > bounds.body:
            raise _Refused(413, f"the body has {int(declared):,} bytes; {bounds.body:,} are allowed")
        size = 0
        try:
            async with asyncio.timeout(bounds.body_s):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Refused(400, "the client went away in its body")
                    parts.append(message.get("body", b""))
                    self._buffered += len(parts[-1])
                    size += len(parts[-1])
                    more = message.get("more_body", False)
                    if size > bounds.body:
                        raise _Refused(413, f"the body has more than the {bounds.body:,} bytes that are allowed")
                    if self._buffered > bounds.buffered:
                        raise _Refused(503, "the bodies of all requests together are too large now; try again")
        except TimeoutError as e:
            raise _Refused(408, f"the body was not here within {bounds.body_s:g} s") from e


def _is_local(url: str) -> bool:
    try:
        name = urlsplit(url).hostname or ""
        return name == _LOCAL or ip_address(name).is_loopback
    except ValueError:
        return False


def _replayed(body: bytes, receive: Receive) -> Receive:
    given: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return given.pop() if given else await receive()

    return again
