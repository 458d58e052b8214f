"""The gateway's HTTP server: three APIs, rollout prefixes, captures (platform.md D2, G1).

Invariant: every wait and every body is bounded, and a request that is refused gets the error of the API it came by.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from schemas import jsontext
from schemas.identity import is_id
from services.gateway import token_chains
from services.gateway.call import Asked, Caller, Outcome
from services.gateway.captures import Captures
from services.gateway.surfaces.chat import ChatSurface
from services.gateway.surfaces.messages import MessagesSurface
from services.gateway.surfaces.responses import ResponsesSurface
from services.gateway.surfaces.surface import Event, Surface

SURFACES: tuple[Surface, ...] = (ResponsesSurface(), ChatSurface(), MessagesSurface())
_BY_PATH = {surface.path: surface for surface in SURFACES}

PREFIX = "/ng-rollout/"
TOKEN_CAPTURE = "training-token-capture"  # noqa: S105 - a path
_PREFIXED = re.compile(rf"{PREFIX}([^/]*)(?:/{TOKEN_CAPTURE})?(/.*)?")

MAX_BODY = 64 << 20
"""As much as a conversation with images may have; the engine's own limit is met before."""

BODY_S = 60.0
"""For a request's body to arrive: a client that sends byte after byte must not hold a place for ever."""

PING_S = 10.0
"""A stream begins after this long without an answer, with a comment every so often: proxies and harnesses give up on a
connection on which nothing moves."""

_KEYS = ("authorization", "x-api-key", "api-key")
_SSE = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """`api_key`: what callers must show (empty: nothing); `in_flight`: calls at once, further ones are sent away."""

    api_key: str = ""
    in_flight: int = 4_096
    ping_s: float = PING_S
    body_s: float = BODY_S


class Gateway:
    """The server; `start` and `close` it. `port` is the real one once it listens."""

    def __init__(
        self, caller: Caller, names: Iterable[str], captures: Captures | None, options: GatewayOptions, host: str, port: int
    ) -> None:
        self._caller = caller
        self._names = list(names)
        self._captures = captures
        self._options = options
        self.host, self.port = host, port
        self._in_flight = 0
        self._runner: web.ServerRunner | None = None

    async def start(self) -> None:
        """Listen."""
        server = web.Server(self._handle, access_log=None, handler_cancellation=True)  # who hangs up wants no answer
        self._runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, self.host, self.port, backlog=4096).start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Stop listening; calls under way are cut off."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @property
    def url(self) -> str:
        """Where the server is, before `/v1`."""
        return f"http://{self.host}:{self.port}"

    async def _handle(self, http: web.BaseRequest) -> web.StreamResponse:
        rollout_id, path = "", http.path
        prefixed = _PREFIXED.fullmatch(path)
        if prefixed:
            rollout_id, path = prefixed[1], prefixed[2] or "/"
        surface = _BY_PATH.get(path, SURFACES[0])
        if prefixed and not is_id(rollout_id):
            return _refused(
                surface, 400, f"{rollout_id[:80]!r} is no rollout id: a letter or digit, then letters, digits, . _ -"
            )
        if not self._is_known(http):
            return _refused(surface, 401, "the key is wrong or missing")
        if http.method == "POST" and path in _BY_PATH:
            return await self._answer(http, surface, rollout_id)
        return await self._other(http, surface, rollout_id, path)

    async def _other(self, http: web.BaseRequest, surface: Surface, rollout_id: str, path: str) -> web.StreamResponse:
        match (http.method, path):
            case ("GET", "/v1/models"):
                return _json(
                    {
                        "object": "list",
                        "data": [{"id": n, "object": "model", "created": 0, "owned_by": "rollstream"} for n in self._names],
                    }
                )
            case ("GET", "/health"):
                return _json({"status": "ok", "in_flight": self._in_flight})
        if rollout_id and self._captures is not None:
            match (http.method, path):
                case ("GET", "/capture"):
                    return _json(await asyncio.to_thread(self._captures.attachment, rollout_id))
                case ("GET", "/sample"):
                    return _json(await asyncio.to_thread(_sample, self._captures, rollout_id))
                case ("DELETE", "/"):
                    await asyncio.to_thread(self._captures.clear, rollout_id)
                    return web.Response(status=204)
        known = ", ".join(f"POST {p}" for p in _BY_PATH)
        return _refused(surface, 404, f"no {http.method} {path[:200]} here; there are {known} and GET /v1/models")

    async def _answer(self, http: web.BaseRequest, surface: Surface, rollout_id: str) -> web.StreamResponse:
        if self._in_flight >= self._options.in_flight:
            return _refused(surface, 503, f"{self._in_flight} calls are under way", {"Retry-After": "1"})
        self._in_flight += 1
        try:
            body = await self._body(http, surface)
            if isinstance(body, web.Response):
                return body
            session = http.headers.get("x-session-id", "")
            asked = Asked(surface, body, rollout_id, http.headers.get("Idempotency-Key", "")[:200], session)
            if body.get("stream"):
                return await self._stream(http, asked)
            outcome = await self._caller.call(asked)
            if outcome.response is None:
                return _refused(surface, outcome.status, outcome.message)
            return _json(surface.reply(outcome.response, body))
        finally:
            self._in_flight -= 1

    async def _stream(self, http: web.BaseRequest, asked: Asked) -> web.StreamResponse:
        """The answer as events. One that comes soon enough can still be an ordinary error."""
        call = asyncio.ensure_future(self._caller.call(asked))
        try:
            await asyncio.wait([call], timeout=self._options.ping_s)
            if call.done() and call.result().response is None:
                outcome = call.result()
                return _refused(asked.surface, outcome.status, outcome.message)
            response = web.StreamResponse(headers=_SSE)
            await response.prepare(http)
            while not call.done():
                await response.write(b": still at it\n\n")
                await asyncio.wait([call], timeout=self._options.ping_s)
            await response.write(b"".join(e.encoded() for e in _events(asked, call.result())))
            await response.write_eof()
            return response
        finally:
            call.cancel()

    async def _body(self, http: web.BaseRequest, surface: Surface) -> Mapping[str, Any] | web.Response:
        if (http.content_length or 0) > MAX_BODY:
            return _refused(surface, 413, f"the body has more than {MAX_BODY:,} bytes")
        raw = bytearray()
        try:
            async with asyncio.timeout(self._options.body_s):
                async for chunk in http.content.iter_any():
                    raw += chunk
                    if len(raw) > MAX_BODY:
                        return _refused(surface, 413, f"the body has more than {MAX_BODY:,} bytes")
        except TimeoutError:
            return _refused(surface, 408, f"the body did not arrive within {self._options.body_s:g} s")
        try:
            body = jsontext.loads_lenient(bytes(raw))
        except (ValueError, RecursionError) as e:
            return _refused(surface, 400, f"the body is not JSON: {e}")
        return body if isinstance(body, dict) else _refused(surface, 400, "the body must be a JSON object")

    def _is_known(self, http: web.BaseRequest) -> bool:
        if not self._options.api_key:
            return True
        shown = (http.headers.get(name, "").removeprefix("Bearer ") for name in _KEYS)
        return any(hmac.compare_digest(s.encode(), self._options.api_key.encode()) for s in shown)


def _events(asked: Asked, outcome: Outcome) -> Iterable[Event]:
    if outcome.response is None:
        return asked.surface.failure(outcome.status, outcome.message, asked.body)
    return asked.surface.events(outcome.response, asked.body)


def _sample(captures: Captures, rollout_id: str) -> dict[str, Any]:
    records, cut = captures.tokens(rollout_id)
    return token_chains.build(records, incomplete=cut).as_json()


def _json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=jsontext.dumps(value), status=status, content_type="application/json", headers=headers)


def _refused(surface: Surface, status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return _json(surface.error(status, message), status, headers)
