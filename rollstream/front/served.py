"""One environment as it is served, and what its routes share: reading bodies, finding sessions, letting callers in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from environments.registry import Binding, Entry, Registry
from rollstream.front.bounds import Bounds
from rollstream.front.gate import Gate
from rollstream.front.problems import Mask, refusal
from rollstream.front.sessions import Session, Sessions, new_episode
from schemas import jsontext
from schemas.errors import DataError, RolloutCancelled, RolloutError
from services.direct.episode import Episode
from services.direct.services import Services

T = TypeVar("T")

SESSION_HEADER = "X-Rollstream-Session"
"""For clients that keep no cookies: the same key, in requests and replies."""


@dataclass(frozen=True)
class Served:
    """A variant of an environment with its agent. `mask` takes secrets out of texts."""

    binding: Binding
    entry: Entry
    registry: Registry
    services: Services
    sessions: Sessions
    calls: Gate
    runs: Gate
    bounds: Bounds = field(default_factory=Bounds)
    mask: Mask = lambda text: text

    @property
    def name(self) -> str:
        return self.binding.name

    @property
    def cookie(self) -> str:
        """Each environment has its own: cookies do not tell ports of one host apart."""
        return f"rollstream_{self.name}"

    def session_of(self, request: Request) -> Session | None:
        """The session a request names; None when it names none. Raises `UnknownSession`."""
        key = request.headers.get(SESSION_HEADER) or request.cookies.get(self.cookie)
        return self.sessions.find(key) if key else None

    def episode_of(self, row: Mapping[str, Any] | None) -> Episode:
        """A new episode; it belongs to no session yet."""
        return new_episode(self.services, self.binding, row)

    def bound(self, response: Response, session: Session) -> Response:
        """`response` telling its client the session."""
        response.set_cookie(self.cookie, session.key, httponly=True, samesite="lax")
        response.headers[SESSION_HEADER] = session.key
        return response


def answered(served: Served, work: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """A route that answers errors with their class."""

    async def route(request: Request) -> Response:
        try:
            return await work(request)
        except RolloutError as e:
            return refusal(e, served.mask)

    return route


async def read_json(request: Request) -> Any:
    """The body; raises `DataError` when it is not JSON or nested too deep."""
    try:
        value = jsontext.loads_lenient(await request.body())
    except ValueError as e:
        raise DataError(f"the body is not JSON: {e}") from e
    if jsontext.too_deep(value):
        raise DataError(f"the body is nested deeper than {jsontext.MAX_DEPTH} levels")
    return value


async def read_object(request: Request) -> dict[str, Any]:
    """The body; raises `DataError` when it is not a JSON object."""
    value = await read_json(request)
    if not isinstance(value, dict):
        raise DataError("the body must be a JSON object")
    return value


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client goes away: nobody would read it."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise RolloutCancelled("the client went away")
    finally:
        leaving.cancel()
        working.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
