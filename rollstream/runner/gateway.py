"""The gateway as configured: the models, the server, and the captures (`rollstream model serve`)."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from rollstream.runner import local
from rollstream.settings.model import Settings
from services.gateway.app import Gateway, GatewayOptions
from services.gateway.call import Caller
from services.gateway.captures import Captures
from services.models.named import POLICY, NamedModels


async def serve(settings: Settings, started: Callable[[Gateway], None], stop: asyncio.Event | None = None) -> None:
    """Serve until a signal (or `stop`); `started` is told where. Raises `OSError` when the port is taken."""
    stop = stop or _at_signal()
    s = settings.gateway
    captures = Captures(s.captures.expanduser()) if s.captures else None
    options = GatewayOptions(s.api_key.get_secret_value() if s.api_key else "", s.in_flight)
    async with local.models(settings) as endpoints:
        models = NamedModels(endpoints, budget_s=settings.deadlines.rollout_timeout_s)
        await models.start()
        names = [name for name in (POLICY, *endpoints.named) if endpoints.find(name)]
        clients = {name: models.client(name) for name in names}
        gateway = Gateway(Caller(clients, captures), names, captures, options, s.host, s.port)
        try:
            await gateway.start()
            started(gateway)
            await stop.wait()
        finally:
            await gateway.close()
            await models.close()


def _at_signal() -> asyncio.Event:
    stop = asyncio.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sign, stop.set)
    return stop
