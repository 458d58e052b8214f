"""A code server that compiles nothing: it refuses programs that hold a marker and warns of `sorry` (math_formal_lean.md)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

MARKER = "fails_here"


@dataclass
class FakeCodeServer:
    """Where it listens, and the requests it had."""

    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)


@contextlib.asynccontextmanager
async def code_server() -> AsyncIterator[FakeCodeServer]:
    """One on a free port of this machine."""
    fake = FakeCodeServer("")

    async def execute(request: web.Request) -> web.Response:
        asked = await request.json()
        fake.requests.append(asked)
        return web.json_response(_compiled(asked["generated_code"]))

    async with serving("/execute", execute) as fake.url:
        yield fake


@contextlib.asynccontextmanager
async def serving(path: str, handler: Callable[[web.Request], Any]) -> AsyncIterator[str]:
    """An HTTP server that answers POSTs to `path`; yields its base URL."""
    app = web.Application()
    app.router.add_post(path, handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def _compiled(code: str) -> dict[str, str]:
    place = "/lean4/my_project/tmp.lean:1:0:"
    if MARKER in code:
        return {"process_status": "failed", "stdout": f"{place} error: unknown tactic '{MARKER}'", "stderr": ""}
    said = f"{place} warning: declaration uses 'sorry'" if "sorry" in code else ""
    return {"process_status": "completed", "stdout": said, "stderr": ""}
