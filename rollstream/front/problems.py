"""Errors as HTTP: a status and a JSON body that says the class.

The body is `{"detail": TEXT, "error": {"class", "type", "message", "retryable"}}`: `detail` is what clients of the reference
show, `class` is the closed taxonomy of `schemas.errors`. Invariant: no body shows a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from starlette.responses import Response

from schemas import jsontext
from schemas.errors import FailureClass, RolloutError

RETRY_AFTER_S = 1

_STATUS = {
    FailureClass.DATA: 422,
    FailureClass.CANCELLED: 409,
    FailureClass.TOOL: 500,
    FailureClass.VERIFIER: 500,
    FailureClass.MODEL: 502,
    FailureClass.JUDGE: 502,
    FailureClass.INFRASTRUCTURE: 503,
    FailureClass.CAPACITY: 503,
    FailureClass.TIMEOUT: 504,
}

Mask = Callable[[str], str]


class UnknownSession(RolloutError):
    """The session has ended, or was never here."""

    failure_class = FailureClass.DATA
    retryable = False


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """`value` as JSON by our own rules (integers of any length, surrogates escaped)."""
    return Response(jsontext.dumps(value), status, dict(headers or {}), "application/json")


def refusal(error: RolloutError, mask: Mask) -> Response:
    """The response to a request that ended in `error`."""
    text = mask(f"{error} ({error.detail})" if error.detail else str(error))
    kind = {"class": error.failure_class.value, "type": type(error).__name__}
    body = {"detail": text, "error": {**kind, "message": text, "retryable": error.retryable}}
    status = 410 if isinstance(error, UnknownSession) else _STATUS[error.failure_class]
    headers = {"Retry-After": str(RETRY_AFTER_S)} if error.failure_class is FailureClass.CAPACITY else {}
    return json_response(body, status, headers)
