"""A worker's health over HTTP, for orchestrators and people.

`/live`: 200 while the process can answer. `/ready`: 200 once partitions are assigned and open, else 503. `/status`: the
stages' counters as JSON. `/metrics`: all counts, for Prometheus. Bound to one small port; it takes no input.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from aiohttp import web

from schemas import jsontext
from services.metrics.collect import page
from services.metrics.exposition import CONTENT_TYPE
from services.runtime.stage import Stage
from services.runtime.worker import Worker


class Health:
    """Serves the health of some workers. `port` 0 takes a free one; `url` says which, once started."""

    def __init__(self, workers: list[Worker], host: str, port: int) -> None:
        self._workers = workers
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self) -> None:
        """Bind the port; raises `OSError` when it is taken."""
        app = web.Application(client_max_size=1024)
        app.add_routes([web.get("/live", self._live), web.get("/ready", self._ready), web.get("/status", self._status)])
        app.add_routes([web.get("/metrics", self._metrics)])
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _live(self, _: web.Request) -> web.Response:
        return web.Response(text="live\n")

    async def _ready(self, _: web.Request) -> web.Response:
        waiting = [w.name for w in self._workers if not w.ready]
        if waiting:
            return web.Response(status=503, text=f"not ready: {', '.join(waiting)}\n")
        return web.Response(text="ready\n")

    async def _status(self, _: web.Request) -> web.Response:
        body = {w.name: [_describe(s) for s in w.stages] for w in self._workers}
        return web.Response(body=jsontext.dumps(body), content_type="application/json")

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=page(self._workers).encode(), headers={"Content-Type": CONTENT_TYPE})


def _describe(stage: Stage) -> dict[str, Any]:
    lanes = {f"{p.topic}/{p.partition}": lane.state.value for p, lane in stage.lanes.items()}
    now = {"active": stage.active, "in_flight": stage.in_flight, "held": stage.held}
    return {"stage": stage.settings.name, **now, "lanes": lanes, **dataclasses.asdict(stage.counters)}
