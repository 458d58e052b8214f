"""The broker connection as FastStream wants it."""

from __future__ import annotations

from faststream.security import BaseSecurity, SASLPlaintext, SASLScram256, SASLScram512

from services.runtime.connection import Connection

_MECHANISMS: dict[str, type[SASLPlaintext | SASLScram256 | SASLScram512]] = {
    "PLAIN": SASLPlaintext,
    "SCRAM-SHA-256": SASLScram256,
    "SCRAM-SHA-512": SASLScram512,
}


def security_of(connection: Connection) -> BaseSecurity | None:
    """FastStream's security object for a connection; None for a plain one."""
    if not connection.encrypted and not connection.authenticated:
        return None
    context = connection.kwargs().get("ssl_context")
    if not connection.authenticated:
        return BaseSecurity(ssl_context=context, use_ssl=True)
    kind = _MECHANISMS[connection.sasl_mechanism or "PLAIN"]
    return kind(
        username=connection.username or "",
        password=connection.password or "",
        ssl_context=context,
        use_ssl=connection.encrypted,
    )
