"""Serving the script over HTTP.

Invariant: a request costs one parse and one write. The plain path stays below 150 µs of CPU: it is the server of the
benchmarks, and what it spends is not left for what is measured on the same machine.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import orjson
from aiohttp import web

from rollstream.scripted import chat, script
from rollstream.scripted import fault as faults
from rollstream.scripted.fault import NO_FAULT, Fault, FaultKind
from rollstream.scripted.options import Options
from schemas import jsontext

MAX_REQUEST_BYTES = 64 * 1024 * 1024
"""A conversation with images may have tens of megabytes; beyond this it is a mistake."""

_BACKLOG = 4096
"""Linux's usual upper limit: a benchmark opens thousands of connections at once."""

_MAX_KEYS = 65_536
"""Idempotency keys whose tries are counted; only requests that ask for faults take one."""

_JSON = "application/json"
_POST_PATH = "/v1/responses"
_DEPLOYMENT = re.compile(r"/openai/deployments/[^/]+(/chat/completions)")
"""Azure OpenAI's paths, which want a version and take the key in a header of its own."""
_MODELS = {
    "object": "list",
    "data": [{"id": script.MODEL, "object": "model", "created": 0, "owned_by": "rollstream: a script, not a model"}],
}


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as it came in."""

    key: str
    body: bytes
    authorization: str
    path: str = ""
    api_key: str = ""


class ScriptedModel:
    """The server, on a loopback port, as an async context manager: `async with ScriptedModel() as model: model.base_url`.

    `faults` apply to the first requests in order of arrival, one each. `record` keeps the requests in `seen`.
    """

    def __init__(
        self,
        options: Options | None = None,
        *,
        faults: Iterable[Fault] = (),
        host: str = "127.0.0.1",
        port: int = 0,
        record: bool = False,
    ) -> None:
        self.options = options or Options()
        self.requests = 0
        self.seen: list[Seen] = []
        self.host, self.port = host, port
        self._record = record
        self._faults = iter(faults)
        self._tries: OrderedDict[str, int] = OrderedDict()
        self._runner: web.ServerRunner | None = None

    @property
    def base_url(self) -> str:
        """Where the API is: `http://host:port/v1`."""
        return f"http://{self.host}:{self.port}/v1"

    @property
    def url(self) -> str:
        """`URL/NAME`, as commands take it."""
        return f"{self.base_url}/{script.MODEL}"

    async def start(self) -> None:
        """Listen. `port` is the real one afterwards."""
        server = web.Server(self._handle, access_log=None)
        # A hung request must not hold up the end of a test.
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, self.host, self.port, backlog=_BACKLOG).start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Stop listening and drop open connections."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        await self.close()

    async def _handle(self, http: web.BaseRequest) -> web.StreamResponse:
        if http.method == "POST" and http.path == _POST_PATH:
            return await self._respond(http)
        if http.method == "POST":
            return await self._respond_in_dialect(http)
        if http.method == "GET" and http.path == "/v1/models":
            return _json(orjson.dumps(_MODELS))
        return _nothing_here(http)

    async def _respond_in_dialect(self, http: web.BaseRequest) -> web.StreamResponse:
        deployment = _DEPLOYMENT.fullmatch(http.path)
        if deployment and not http.query.get("api-version"):
            return _error(404, "Resource not found", code="404")
        if deployment and not http.headers.get("api-key"):
            return _error(401, "Access denied due to missing key", code="401")
        match deployment[1] if deployment else http.path.removeprefix("/v1"):
            case "/chat/completions" | "/completions":
                return await self._respond(http)
            case "/tokenize":
                body = jsontext.loads_lenient(await http.content.read())
                ids = chat.prompt_ids(body)
                return _json(jsontext.dumps({"count": len(ids), "max_model_len": 1 << 20, "tokens": ids}))
        return _nothing_here(http)

    async def _respond(self, http: web.BaseRequest) -> web.StreamResponse:
        if (http.content_length or 0) > MAX_REQUEST_BYTES:
            return _error(413, "request too large")
        body = await http.content.read()
        self.requests += 1
        key = http.headers.get("Idempotency-Key", "")
        if self._record:
            keys = (http.headers.get("Authorization", ""), http.path_qs, http.headers.get("api-key", ""))
            self.seen.append(Seen(key, body, *keys))
        try:
            request = jsontext.loads_lenient(body)
            fault = self._fault(request, key)
            if http.path != _POST_PATH and not isinstance(request.get("messages", request.get("prompt")), list | str):
                raise ValueError("neither messages nor a prompt")
        except (ValueError, AttributeError, RecursionError) as e:
            return _error(400, f"bad request: {e}")
        return await self._answer(http, request, key, len(body), fault)

    async def _answer(
        self, http: web.BaseRequest, request: dict[str, Any], key: str, size: int, fault: Fault
    ) -> web.StreamResponse:
        sent = None if http.path == _POST_PATH else request
        if sent is not None:
            request = chat.as_request(sent)
        digest = script.digest(request, key, self.options)
        delay = self.options.delay(digest) + fault.delay
        if delay:
            await asyncio.sleep(delay)
        if fault.kind is FaultKind.NONE and sent is None:
            return _json(jsontext.dumps(self._body(request, digest, size, fault.kind)))
        if fault.kind in faults.REPLACING:
            return await _misbehave(http, fault)
        if sent is not None:
            return _json(json.dumps(self._completion(request, sent, digest, fault.kind)).encode())
        reply = faults.change_body(fault.kind, self._body(request, digest, size, fault.kind))
        return await _trickle(http, reply, fault) if fault.kind is FaultKind.TRICKLE else _json(reply)

    def _body(self, request: dict[str, Any], digest: bytes, size: int, kind: FaultKind) -> dict[str, Any]:
        turn = script.read(request, digest)
        items = script.output(turn, self.options)
        if kind is not FaultKind.NONE:
            items = faults.change_items(kind, items, turn)
        written = self.options.pad_bytes + self.options.turn_bytes + 64 * len(items)
        return script.response(request, items, turn, (size, written), int(time.time()))

    def _completion(self, request: dict[str, Any], sent: dict[str, Any], digest: bytes, kind: FaultKind) -> dict[str, Any]:
        turn = script.read(request, digest)
        items = faults.change_items(kind, script.output(turn, self.options), turn)
        return chat.with_fault(kind, chat.completion(sent, items, turn, self.options, int(time.time())))

    def _fault(self, request: dict[str, Any], key: str) -> Fault:
        own = faults.asked_for(request)
        if not own:
            return next(self._faults, NO_FAULT)
        tried = self._tries.pop(key, 0)
        self._tries[key] = tried + 1
        if len(self._tries) > _MAX_KEYS:
            self._tries.popitem(last=False)
        return own[tried] if tried < len(own) else NO_FAULT


async def _misbehave(http: web.BaseRequest, fault: Fault) -> web.StreamResponse:
    match fault.kind:
        case FaultKind.STATUS:
            headers = {} if fault.retry_after is None else {"Retry-After": fault.retry_after}
            return _error(fault.status, fault.body or f"scripted status {fault.status}", headers=headers)
        case FaultKind.GARBAGE:
            return web.Response(body=fault.body.encode() or b"<html>a proxy's page</html>", content_type="text/html")
        case FaultKind.NOT_A_RESPONSE:
            return _json(b'{"object":"chat.completion","choices":[]}')
        case FaultKind.OVERFLOW:
            return _error(400, "This model's maximum context length is 4096 tokens.", code="context_length_exceeded")
        case FaultKind.HANG_BEFORE_HEADERS:
            await asyncio.sleep(fault.seconds)
        case FaultKind.HANG_AFTER_HEADERS:
            await _begin(http, 1000)
            await asyncio.sleep(fault.seconds)
        case FaultKind.CUT:
            await (await _begin(http, 1000)).write(b'{"object":"resp')
    return _hang_up(http)


async def _trickle(http: web.BaseRequest, reply: bytes, fault: Fault) -> web.StreamResponse:
    response = await _begin(http, len(reply))
    for i in range(len(reply)):
        await response.write(reply[i : i + 1])
        await asyncio.sleep(fault.seconds)
    return response


async def _begin(http: web.BaseRequest, length: int) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": _JSON, "Content-Length": str(length)})
    await response.prepare(http)
    return response


def _nothing_here(http: web.BaseRequest) -> web.Response:
    known = f"POST {_POST_PATH}, /v1/chat/completions, /v1/completions and /tokenize"
    return _error(404, f"the scripted server has no {http.method} {http.path}; it serves {known}")


def _hang_up(http: web.BaseRequest) -> web.StreamResponse:
    if http.transport is not None:
        http.transport.abort()
    return web.Response(status=500)


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type=_JSON)


def _error(status: int, message: str, *, code: str = "scripted", headers: dict[str, str] | None = None) -> web.Response:
    body = orjson.dumps({"error": {"message": message, "type": "scripted_error", "code": code}})
    return web.Response(status=status, body=body, content_type=_JSON, headers=headers)
