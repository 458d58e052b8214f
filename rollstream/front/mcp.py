"""The tools of an environment over MCP: streamable HTTP, stateless, JSON replies (platform.md H).

Owns the JSON-RPC that a server with nothing but tools speaks: `initialize`, `ping`, `tools/list`, `tools/call`, notifications.
Own code: the official package brings 14 others, a cryptography library among them, for these few methods. Invariants: a call
reaches a session only by a token that we have signed, and only tools that the token allows; what cannot be offered as it is
is refused when the server starts.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from environments.environment import Environment
from environments.tools import ToolReply
from rollstream.front.problems import json_response
from rollstream.front.served import Served
from rollstream.front.sessions import Session
from schemas import jsontext
from schemas.errors import DataError, RolloutError
from schemas.rows import PARAMS

TOKEN_HEADER = "X-NeMo-Gym-Session-Token"  # noqa: S105 - the header's name
VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Protocol versions whose part that we speak is the same, the newest first."""

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_PARSE, _REQUEST, _METHOD, _PARAMS = -32700, -32600, -32601, -32602

Tools = Sequence[Mapping[str, Any]]
"""Function tools (A2)."""

Allow = Callable[[Mapping[str, Any]], Collection[str] | None]
Offer = Callable[[Tools], Tools]
CallTool = Callable[[Session | None, str, bytes], Awaitable[tuple[ToolReply, Session | None]]]


class CannotExposeError(DataError):
    """Something of the environment cannot be served as it is."""


class _RpcError(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Exposure:
    """What is offered. `allow` says which tools the session of a row may call (None: all); `offer` filters or adds tools.

    By default a session of an environment that answers calls to tools of the row may call those of its row as well.
    """

    allow: Allow = lambda _: None
    offer: Offer = lambda tools: tools
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    def tools(self, environment: Environment) -> Tools:
        """All tools, as function tools; raises `CannotExposeError` for a name that MCP clients cannot use."""
        found = self.offer([t.schema() for t in environment.tools.values()])
        for tool in found:
            if not _NAME.fullmatch(str(tool.get("name"))):
                raise CannotExposeError(f"tool {tool.get('name')!r}: over MCP, names are letters, digits, _ and -")
        return found

    def metadata(self, server: str, session: Session, row: Mapping[str, Any]) -> dict[str, Any]:
        """What a seed's reply says, so that an MCP client can be pointed at the session."""
        allowed = self.allow(row)
        payload = {"sid": session.key, **({} if allowed is None else {"tools": sorted(allowed)})}
        return {
            "server_name": server,
            "url_path": "/mcp",
            "transport": "http",
            "headers": {TOKEN_HEADER: self._signed(jsontext.dumps(payload))},
        }

    def read(self, token: str) -> Mapping[str, Any] | None:
        """What a token of ours says; None for any other text."""
        body, _, signature = token.partition(".")
        if not hmac.compare_digest(self._signature(body).encode(), signature.encode("utf-8", "replace")):
            return None
        found: Mapping[str, Any] = jsontext.loads(base64.urlsafe_b64decode(body))
        return found

    def as_verified(self, server: str, response: Mapping[str, Any]) -> Mapping[str, Any]:
        """The response as the verifier sees it: calls that MCP clients have named `mcp__SERVER__TOOL` by their tools' names."""
        prefix = f"mcp__{server}__"
        items = response.get("output")
        if not isinstance(items, list) or not any(_called(i).startswith(prefix) for i in items):
            return response
        return {**response, "output": [_renamed(i, prefix) for i in items]}

    def _signed(self, payload: bytes) -> str:
        body = base64.urlsafe_b64encode(payload).decode()
        return f"{body}.{self._signature(body)}"

    def _signature(self, body: str) -> str:
        return hmac.new(self.key, body.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


class Endpoint:
    """`POST /mcp` of one environment. `call` runs a tool."""

    def __init__(self, served: Served, exposure: Exposure, call: CallTool) -> None:
        self._served, self._exposure, self._call = served, exposure, call
        self._tools = exposure.tools(served.binding.environment)

    async def refuse(self, _: Request) -> Response:
        """Nothing is streamed and no MCP session is kept, so there is nothing to read or to end."""
        return Response(status_code=405, headers={"Allow": "POST"})

    async def answer(self, request: Request) -> Response:
        """The reply to one JSON-RPC message."""
        try:
            message = jsontext.loads_lenient(await request.body())
        except ValueError as e:
            return json_response(_error(None, _PARSE, f"not JSON: {e}"), 400)
        if not isinstance(message, dict) or not isinstance(message.get("method"), str):
            known = isinstance(message, dict) and ("result" in message or "error" in message)
            return Response(status_code=202) if known else json_response(_error(None, _REQUEST, "one request at a time"), 400)
        if "id" not in message:
            return Response(status_code=202)
        params = message.get("params")
        return json_response(await self._reply(request, message, params if isinstance(params, dict) else {}))

    async def _reply(self, request: Request, message: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
        number, method = message["id"], message["method"]
        try:
            if method == "initialize":
                return _result(number, self._initialized(params))
            if method == "ping":
                return _result(number, {})
            if method not in {"tools/list", "tools/call"}:
                raise _RpcError(_METHOD, f"no method {str(method)[:100]!r}")
            session, tools = self._offered(request.headers.get(TOKEN_HEADER))
            if method == "tools/list":
                return _result(number, {"tools": [_described(t) for t in tools]})
            if session is None:
                raise _RpcError(_PARAMS, f"tools/call needs the {TOKEN_HEADER} that /seed_session gave")
            return _result(number, await self._called(session, [t["name"] for t in tools], params))
        except _RpcError as e:
            return _error(number, e.code, str(e))

    def _initialized(self, params: Mapping[str, Any]) -> dict[str, Any]:
        asked = params.get("protocolVersion")
        return {
            "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": {"name": self._served.name, "version": metadata.version("rollstream")},
        }

    def _offered(self, token: str | None) -> tuple[Session | None, Tools]:
        """The session of a token and what it may call; without one, all tools."""
        if token is None:
            return None, self._tools
        found = self._exposure.read(token)
        if found is None:
            raise _RpcError(_PARAMS, f"{TOKEN_HEADER} is not one of ours")
        try:
            session = self._served.sessions.find(found["sid"])
        except RolloutError as e:
            raise _RpcError(_PARAMS, str(e)) from e
        allowed = found.get("tools")
        return session, [t for t in self._of(session) if allowed is None or t["name"] in allowed]

    def _of(self, session: Session) -> Tools:
        """The environment's tools, and those of the session's seed and row that it answers."""
        environment = self._served.binding.environment
        if type(environment).call_unknown_tool is Environment.call_unknown_tool:
            return self._tools
        params = (session.episode.row or {}).get(PARAMS, {})
        given = [*(params.get("tools") or ()), *session.tools]
        known = {t["name"] for t in self._tools}
        more = {t["name"]: t for t in given if _NAME.fullmatch(str(t.get("name"))) and t["name"] not in known}
        return [*self._tools, *more.values()]

    async def _called(self, session: Session, names: Sequence[str], params: Mapping[str, Any]) -> dict[str, Any]:
        name = params.get("name")
        if name not in names:
            return _content(f"no tool {str(name)[:100]!r}; there are: {', '.join(names)}", error=True)
        try:
            reply, _ = await self._call(session, str(name), jsontext.dumps(params.get("arguments") or {}))
        except RolloutError as e:
            return _content(f"HTTP 500 from POST /{name}: {self._served.mask(str(e))}", error=True)
        if reply.status >= 400:  # noqa: PLR2004 - HTTP's errors begin here
            return _content(f"HTTP {reply.status} from POST /{name}: {_detail(reply.output)}", error=True)
        return _content(reply.output, structured=_object(reply.output))


def _called(item: Any) -> str:
    name = item.get("name") if isinstance(item, dict) and item.get("type") == "function_call" else None
    return name if isinstance(name, str) else ""


def _renamed(item: Any, prefix: str) -> Any:
    name = _called(item)
    return {**item, "name": name.removeprefix(prefix)} if name.startswith(prefix) else item


def _described(tool: Mapping[str, Any]) -> dict[str, Any]:
    schema = tool.get("parameters") or {"type": "object", "additionalProperties": True}
    return {"name": tool["name"], "description": tool.get("description") or "", "inputSchema": schema}


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = jsontext.loads_lenient(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _detail(text: str) -> str:
    found = (_object(text) or {}).get("detail")
    return text if found is None else found if isinstance(found, str) else jsontext.dumps(found).decode()


def _content(text: str, *, error: bool = False, structured: Mapping[str, Any] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": error}
    return found if structured is None else {**found, "structuredContent": structured}


def _result(number: Any, result: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "result": result}


def _error(number: Any, code: int, text: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": text}}
