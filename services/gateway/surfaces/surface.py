"""What an API of the gateway is made of.

Invariant: inside there is only Responses; a surface turns its own API's request into one, and a Responses object into its own
API's reply, whole or as the events of a stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from schemas import jsontext


class Event(NamedTuple):
    """A server-sent event; `data` is JSON, or a text that is sent as it is."""

    name: str | None
    data: Any

    def encoded(self) -> bytes:
        """The bytes on the wire."""
        data = self.data.encode() if isinstance(self.data, str) else jsontext.dumps(self.data)
        head = f"event: {self.name}\n".encode() if self.name else b""
        return head + b"data: " + data + b"\n\n"


class Surface(Protocol):
    """One API."""

    name: str
    """Its dialect in a capture (G1)."""

    path: str

    def request(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The Responses request; raises `DataError` for what has no form there."""
        ...

    def reply(self, response: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to `body`, whole."""
        ...

    def events(self, response: Mapping[str, Any], body: Mapping[str, Any]) -> Iterable[Event]:
        """The reply to `body` as a stream."""
        ...

    def error(self, status: int, message: str) -> dict[str, Any]:
        """The body of an error."""
        ...

    def failure(self, status: int, message: str, body: Mapping[str, Any]) -> Iterable[Event]:
        """The end of a stream that had begun."""
        ...


KINDS = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error", 413: "request_too_large"}


def error_kind(status: int) -> str:
    """The `type` that OpenAI and Anthropic give an error of this status."""
    return KINDS.get(status, "rate_limit_error" if status in {429, 503} else "api_error")


EXTRA = "_extra"
"""Key of a surface's request for parameters that Responses does not have; the caller sends them as `extra_body` (D3)."""
