"""Several model calls of one turn at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


async def together(calls: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """All replies, in order. The first failure ends the other calls: nobody would read their answers."""
    tasks = [asyncio.ensure_future(c) for c in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
