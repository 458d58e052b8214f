"""The routes of an environment: seed, tools, verification, metrics (platform.md H).

Invariant: a tool's reply is the text that a model reads from the workers (agents.md, "Tool server replies"), whatever its
status, and a failed judge is the reference's row of class `judge_failed` (A9, D10), never a bare reward of 0.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from environments.environment import Environment
from environments.tools import ToolReply
from rollstream.front import mcp
from rollstream.front.problems import UnknownSession, json_response
from rollstream.front.served import Served, answered, read_json, read_object
from rollstream.front.sessions import Session
from schemas import jsontext
from schemas.errors import DataError, JudgeError, RolloutError
from schemas.events import ToolCall
from schemas.rows import AGENT_REF, PARAMS, ROLLOUT_ID, ROLLOUT_INDEX, TASK_INDEX, check_row
from services.direct.episode import Episode
from services.verifier_worker.line import result_line

OWN = frozenset(
    {"seed_session", "verify", "aggregate_metrics", "reverify_mode", "mcp", "run", "v1", "docs", "openapi.json", "redoc"}
)
"""Paths that are ours: no tool may have such a name, and a model that calls one is told that there is no such tool."""


class EnvironmentRoutes:
    """The environment's routes on an app of its own. `exposure` says whether, and what of it, is offered over MCP."""

    def __init__(self, served: Served, exposure: mcp.Exposure | None) -> None:
        self.served = served
        self.exposure = exposure

    def add_to(self, app: FastAPI) -> None:
        """Add the routes; the one for tools that nobody has defined must be the last of all."""
        served = self.served
        _add(app, "/seed_session", answered(served, self.seed), "Begin a rollout of a row.", _ROW)
        _add(app, "/verify", answered(served, self.verify), "Score a row and its `response`.", _VERIFY)
        _add(app, "/aggregate_metrics", answered(served, self.aggregate), "Metrics over result lines.", _LINES)
        app.add_api_route("/reverify_mode", self.reverify_mode, methods=["GET"], summary="Whether scoring again is safe (C3).")
        if self.exposure is not None:
            endpoint = mcp.Endpoint(served, self.exposure, self.tool_reply)
            app.add_route("/mcp", endpoint.refuse, methods=["GET", "DELETE"])
            _add(app, "/mcp", endpoint.answer, "The tools over MCP (streamable HTTP, stateless).", {})
        for tool in served.binding.environment.tools.values():
            schema = tool.schema()["parameters"]
            _add(app, f"/{tool.name}", answered(served, self.tool), tool.description.partition("\n")[0], schema)
        app.add_api_route("/{name}", answered(served, self.tool), methods=["POST"], include_in_schema=False)

    async def seed(self, request: Request) -> Response:
        row = await read_object(request)
        # Seeds need not be rows: some environments read a field or two.
        params = row.get(PARAMS, {})
        row[PARAMS] = {"input": [], **params} if isinstance(params, dict) else params
        check_row(row)
        async with self.served.calls.entered():
            episode = self.served.episode_of(row)
            seed = await episode.seed()
        try:
            session = self.served.sessions.begin(episode, len(await request.body()))
        except RolloutError:
            await episode.forget()
            raise
        session.tools = seed.tools
        body: dict[str, Any] = {}
        if seed.items:
            body["items"] = seed.items
        if seed.tools:
            body["tools"] = seed.tools
        if self.exposure is not None:
            body["mcp"] = self.exposure.metadata(self.served.name, session, row)
        return self.served.bound(json_response(body), session)

    async def tool(self, request: Request) -> Response:
        name = request.scope["path"].rpartition("/")[2]
        session = self.served.session_of(request)
        reply, session = await self.tool_reply(session, name, (await request.body() or b"null"))
        response = Response(reply.output.encode("utf-8", "replace"), reply.status, media_type=_media_type(reply.output))
        return self.served.bound(response, session) if session else response

    async def tool_reply(self, session: Session | None, name: str, arguments: bytes) -> tuple[ToolReply, Session | None]:
        """The reply to a call, and its session: a new one where the call came with none and the environment has state."""
        environment = self.served.binding.environment
        if name in OWN or (name not in environment.tools and not catches_all(environment)):
            return ToolReply('{"detail":"Not Found"}', status=404), session
        text = arguments.decode("utf-8", "replace")
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.served.calls.entered())
            episode = self.served.episode_of(None) if session is None else session.episode
            if session is None and environment.State is not None:
                session = self.served.sessions.begin(episode, 0)
            if session is None:
                stack.push_async_callback(episode.forget)
            else:
                await stack.enter_async_context(session.lock)
            return await episode.call(ToolCall("", name, text)), session

    async def verify(self, request: Request) -> Response:
        row = await read_object(request)
        response = row.pop("response", None)
        if not isinstance(response, dict):
            raise DataError("the body has no `response` object")
        check_row(row)
        session = self._session_to_verify(request)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.served.calls.entered())
            if session is None:
                episode = self.served.episode_of(row)
                stack.push_async_callback(episode.forget)
            else:
                episode = session.episode
                await stack.enter_async_context(session.lock)
            line = await self._line(episode, row, response)
        if session is not None:
            session.verified = True
        return Response(line, media_type="application/json")

    def _session_to_verify(self, request: Request) -> Session | None:
        """A session that has ended is a loss only where the score depends on what was in it."""
        try:
            return self.served.session_of(request)
        except UnknownSession:
            if self.served.binding.environment.State is None:
                return None
            raise

    async def _line(self, episode: Episode, row: dict[str, Any], response: dict[str, Any]) -> bytes:
        seen = self.exposure.as_verified(self.served.name, response) if self.exposure else response
        data = jsontext.dumps(response)
        try:
            verdict = await episode.verify(row, data if seen is response else jsontext.dumps(seen))
        except JudgeError as e:
            return judge_failed(row, response, self.served.mask(str(e)))
        return own_fields(result_line(episode.ref, self.served.binding.agent_name, row, data, verdict), row)

    async def aggregate(self, request: Request) -> Response:
        body = await read_json(request)
        lines = body.get("verify_responses") if isinstance(body, dict) else body
        if not isinstance(lines, list) or not all(isinstance(line, dict) for line in lines):
            raise DataError("the body must have `verify_responses`, a list of result lines")
        async with self.served.calls.entered():
            return json_response(await asyncio.to_thread(self._aggregated, _numbered(lines)))

    def _aggregated(self, lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What the files of a run with these lines would lead to (B12): one code for both."""
        from rollstream.runfiles.aggregate import aggregate
        from services.sink.paths import RunPaths

        ref = {"name": self.served.binding.agent_name}
        with tempfile.TemporaryDirectory(prefix="rollstream-") as folder:
            paths = RunPaths(Path(folder) / "lines.jsonl")
            paths.results.write_bytes(b"".join(jsontext.dumps({**line, AGENT_REF: ref}) + b"\n" for line in lines))
            found = aggregate(paths, self.served.registry).agents
        empty: dict[str, Any] = {"agent_metrics": {}, "key_metrics": {}, "group_level_metrics": []}
        return {k: v for k, v in (found[0] if found else empty).items() if k != AGENT_REF}

    async def reverify_mode(self) -> str:
        return self.served.binding.environment.reverify.value


def catches_all(environment: Environment) -> bool:
    """Whether the environment answers calls to tools that it does not define."""
    return type(environment).call_unknown_tool is not Environment.call_unknown_tool


def own_fields(line: bytes, row: Mapping[str, Any]) -> bytes:
    """The line without the identity that the row did not have: here, rollouts are numbered by the caller."""
    fields = jsontext.loads_lenient(line)
    for name in (TASK_INDEX, ROLLOUT_INDEX, ROLLOUT_ID):
        if row.get(name) is None:
            fields.pop(name, None)
        else:
            fields[name] = row[name]
    return jsontext.dumps(fields)


def judge_failed(row: Mapping[str, Any], response: Mapping[str, Any], why: str) -> bytes:
    """The reference's line for a failed judge call (A9): it goes to the failures file, and can be verified again."""
    failure = {"_ng_failure_class": JudgeError.failure_class.value, "_ng_failure_judge_error": why}
    return jsontext.dumps({**row, "response": response, "reward": 0.0, **failure})


def _numbered(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The lines with the index of their rollout, which callers may leave out: in order, within their task."""
    seen: Counter[int] = Counter()
    found: list[Mapping[str, Any]] = []
    for number, line in enumerate(lines):
        task, reward = line.get(TASK_INDEX), line.get("reward")
        if not isinstance(task, int) or not isinstance(reward, int | float):
            raise DataError(f"verify_responses[{number}] needs {TASK_INDEX}, an integer, and `reward`, a number")
        found.append({ROLLOUT_INDEX: seen[task], **line})
        seen[task] += 1
    return found


def _add(app: FastAPI, path: str, route: Any, summary: str, schema: Mapping[str, Any]) -> None:
    content = {"requestBody": {"content": {"application/json": {"schema": dict(schema) or {"type": "object"}}}}}
    app.add_api_route(path, route, methods=["POST"], summary=summary, openapi_extra=content, response_model=None)


def _media_type(output: str) -> str:
    """What a tool's output is; most is JSON, some is plain text."""
    try:
        jsontext.loads_lenient(output)
    except ValueError:
        return "text/plain"
    return "application/json"


_ROW = {"type": "object", "properties": {PARAMS: {"type": "object"}}, "additionalProperties": True}
_VERIFY = {
    "type": "object",
    "properties": {PARAMS: {"type": "object"}, "response": {"type": "object"}},
    "required": [PARAMS, "response"],
    "additionalProperties": True,
}
_LINES = {
    "type": "object",
    "properties": {"verify_responses": {"type": "array", "items": {"type": "object"}}},
    "required": ["verify_responses"],
}
