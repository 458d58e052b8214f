"""The routes of an agent: a whole rollout, and its turns alone (platform.md H)."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from environments.tools import with_tools
from rollstream.front.environment_routes import judge_failed, own_fields
from rollstream.front.served import Served, answered, read_object, while_connected
from rollstream.front.sessions import new_ref
from schemas import jsontext
from schemas.errors import JudgeError
from schemas.rows import PARAMS, check_row
from services.direct.playing import Play
from services.direct.rollout import Rollout


class AgentRoutes:
    """The routes of the agent that plays this environment."""

    def __init__(self, served: Served) -> None:
        self.served = served

    def add_to(self, app: FastAPI) -> None:
        for path, route, summary in (
            ("/run", self.run, "A rollout from seed to score; the reply is its result line."),
            ("/v1/responses", self.responses, "The agent's turns alone, over request parameters; not scored."),
        ):
            content = {"requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}}}
            made = answered(self.served, route)
            app.add_api_route(path, made, methods=["POST"], summary=summary, openapi_extra=content, response_model=None)

    async def run(self, request: Request) -> Response:
        row = check_row(await read_object(request))
        async with self.served.runs.entered():
            line = await while_connected(request, self._line(row))
        return Response(own_fields(line, row), media_type="application/json")

    async def _line(self, row: dict[str, Any]) -> bytes:
        rollout = Rollout(self.served.services, self.served.binding, new_ref(row), row)
        try:
            return (await rollout.run()).line
        except JudgeError as e:
            if rollout.played is None:
                raise
            return judge_failed(row, jsontext.loads_lenient(rollout.played.response), self.served.mask(str(e)))

    async def responses(self, request: Request) -> Response:
        row = check_row({PARAMS: await read_object(request)})
        session = self.served.session_of(request)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.served.runs.entered())
            if session is None:
                episode = self.served.episode_of(None)
                stack.push_async_callback(episode.forget)
            else:
                episode = session.episode
                await stack.enter_async_context(session.lock)
            params = with_tools(row[PARAMS], session.tools if session else ())
            played = await while_connected(request, Play(self.served.services, episode, params).run())
        response = Response(played.response, media_type="application/json")
        return self.served.bound(response, session) if session else response
