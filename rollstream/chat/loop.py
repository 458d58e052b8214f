"""The services of a chat on a thread of their own, so that the terminal's is free to read lines and to be interrupted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

from rollstream.runner.direct import services_of
from rollstream.runner.local import models
from rollstream.settings.model import Settings
from services.direct.services import Services

T = TypeVar("T")

_CLOSE_S = 20.0


class ChatLoop:
    """`with ChatLoop(settings) as loop: loop.wait(coroutine)`; `services` are started while it is entered."""

    services: Services

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chat", daemon=True)
        self._stack = AsyncExitStack()

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.services = self.wait(self._open())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`. Ctrl-C cancels it, waits until it has cleaned up, and goes on as `KeyboardInterrupt`."""
        future = asyncio.run_coroutine_threadsafe(_noting(work, ended := threading.Event()), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            ended.wait(_CLOSE_S)
            raise

    async def _open(self) -> Services:
        endpoints = await self._stack.enter_async_context(models(self._settings))
        services = services_of(self._settings, endpoints, group_size=1)
        await services.start()
        self._stack.push_async_callback(services.close)
        return services

    def _end(self) -> None:
        asyncio.run_coroutine_threadsafe(self._stack.aclose(), self._loop).result(_CLOSE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_S)
        self._loop.close()


async def _noting(work: Coroutine[Any, Any, T], ended: threading.Event) -> T:
    try:
        return await work
    finally:
        ended.set()
