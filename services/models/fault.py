"""Why a try failed, and whether another one may help.

Invariant: every way in which a try can end without a Responses object is one `Fault`, made here, with a reason that is a
stable short word (it labels a counter) and a message that says what was met.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Any

import aiohttp

from services.models.connector import ShutError
from services.models.gate import Outcome

RETRIED_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520})
"""platform.md D7. Anything else from 400 on would be refused again."""

OVERLOAD_STATUSES = frozenset({429, 503})

SHUT = "shut"
"""Reason of a try that was called back before anything was sent."""

_HINTS = {
    301: "follow no redirects with a POST: set the URL it names",
    401: "check the api key",
    403: "the key may not use this model",
    404: "check the URL (it should end in /v1 before the model) and the model's name",
    405: "the server may not offer this API: see the setting `engine`",
    413: "the request is larger than the server takes",
}
_LOCAL_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS})
"""This machine ran out of files or ports: not the endpoint's doing, but fewer calls at once will help."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A failed try. `raw` is what the server said, unmasked; `body` the parsed reply that was refused, if any."""

    reason: str
    message: str
    retryable: bool
    outcome: Outcome
    raw: bytes = b""
    body: Any = None
    retry_after_s: float | None = None
    timeout: bool = False


def of_status(status: int, raw: bytes, retry_after_s: float | None) -> Fault:
    """The fault of an answer that is not 200."""
    overload = status in OVERLOAD_STATUSES
    hint = _HINTS.get(301 if 300 <= status < 400 else status)  # noqa: PLR2004
    return Fault(
        reason=str(status),
        message=f"HTTP {status}" + (f" ({hint})" if hint else ""),
        retryable=status in RETRIED_STATUSES,
        outcome=Outcome.OVERLOADED if overload else Outcome.ANSWERED,
        raw=raw,
        retry_after_s=retry_after_s if status in RETRIED_STATUSES else None,
    )


def of_garbage(problem: str, raw: bytes, body: Any) -> Fault:
    """The fault of a 200 whose body is not a Responses object."""
    return Fault("garbage", f"HTTP 200, but {problem}", True, Outcome.ANSWERED, raw, body)


def of_unusable(problem: str, raw: bytes) -> Fault:
    """The fault of an answer that our settings and the engine's do not agree about."""
    return Fault("unusable", problem, False, Outcome.ANSWERED, raw)


def of_size(limit: int) -> Fault:
    """The fault of a body that does not end: the same request would bring the same."""
    return Fault("too_large", f"the reply has more than {limit:,} bytes (max_reply_bytes)", False, Outcome.ANSWERED)


def of_timeout(waited_s: float, *, got_head: bool) -> Fault:
    """The fault of a try that ran out of time after its connection was asked for."""
    what = "the body did not end" if got_head else "no answer"
    reason = "body_timeout" if got_head else "first_byte_timeout"
    return Fault(
        reason, f"{what} within {waited_s:.1f} s", True, Outcome.ANSWERED if got_head else Outcome.SILENT, timeout=True
    )


def of_error(error: Exception) -> Fault:
    """The fault of an exception out of aiohttp or the socket below it."""
    if isinstance(error, ShutError):
        return Fault(SHUT, "unreachable", True, Outcome.SILENT)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return Fault("certificate", f"its TLS certificate is not trusted: {error}", False, Outcome.UNREACHABLE)
    if isinstance(error, aiohttp.ServerTimeoutError):
        return Fault("connect_timeout", "no connection in time", True, Outcome.UNREACHABLE, timeout=True)
    if isinstance(error, OSError) and error.errno in _LOCAL_ERRNOS:
        return Fault("local_limit", f"{error} (raise `ulimit -n` or lower max_concurrency)", True, Outcome.OVERLOADED)
    reason, what, outcome = _kind(error)
    return Fault(reason, f"{what}: {str(error) or type(error).__name__}", True, outcome)


def _kind(error: Exception) -> tuple[str, str, Outcome]:
    if isinstance(error, aiohttp.ClientConnectorError):
        return "connect", "no connection", Outcome.UNREACHABLE
    if isinstance(error, aiohttp.ClientPayloadError):
        return "cut", "the body broke off", Outcome.UNREACHABLE
    if isinstance(error, aiohttp.ClientResponseError):
        return "garbage", "the answer is not HTTP", Outcome.ANSWERED
    return "disconnect", "the connection was lost", Outcome.UNREACHABLE
