"""What a process of the pool makes once for all the verifications that it does.

Invariant: importing this imports no clients, which such a process has no use for.
"""

from __future__ import annotations

import asyncio
from functools import cache

from environments.registry import Registry


@cache
def registry_here() -> Registry:
    """The environments that this process finds."""
    return Registry.load()


@cache
def loop_here() -> asyncio.AbstractEventLoop:
    """The loop on which this process waits for what has to be awaited."""
    return asyncio.new_event_loop()
