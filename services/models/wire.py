"""What a dialect hands to the client: one request as it goes out, and how its answer is read.

Invariant: whatever an engine speaks, the client sends bytes to a URL and gets a Responses object (platform.md A5) or a
reason. A dialect is chosen once for an endpoint; the plain one adds nothing to a call but this tuple.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from yarl import URL

Read = Callable[[bytes], tuple[Any, str | None]]
"""The Responses object in an answer's bytes, and what keeps them from being one (None: nothing)."""


class UnusableReplyError(Exception):
    """The engine answered what trying again would only repeat: a setting here or there does not fit the other."""


class Wire(NamedTuple):
    """One request. `follow`: what has to be asked besides, once the body is there; its own `read` gives the final body.

    `answer`: the request needs no engine, this is its Responses object.
    """

    url: URL
    body: bytes
    read: Read
    follow: Callable[[dict[str, Any]], Wire | None] | None = None
    answer: dict[str, Any] | None = None


class Dialect(Protocol):
    """One engine's API."""

    url: URL

    def prepare(self, body: bytes, key: str) -> Wire | Awaitable[Wire]:
        """The request for `body`, a Responses "create" object; `key` identifies the call.

        Raises `DataError` when the engine's API has no form for it.
        """
        ...

    async def start(self) -> None:
        """Load what the dialect needs; raises `InfrastructureError`."""
        ...
