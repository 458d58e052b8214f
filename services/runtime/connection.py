"""How to reach a Kafka cluster: addresses, encryption, login.

Owns the translation from a user's settings to aiokafka's keyword arguments. Invariant: a `Connection` that exists is
consistent (a wrong combination is refused when it is made), and its password never appears in its repr or str.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]/@]+):(\d{1,5})")
_HIGHEST_PORT = 65_535


class BadConnectionError(ValueError):
    """The settings for reaching Kafka contradict each other or name something that is not there."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Everything a client needs to reach the brokers; hashable, so that it can key a cache.

    `bootstrap_servers` is `host:port`, several separated by commas (IPv6 hosts in brackets). `ca_file` is a PEM bundle
    that replaces the system's authorities; `cert_file` and `key_file` (PEM) are this client's own identity.

    Raises `BadConnectionError` on construction, naming the setting.
    """

    bootstrap_servers: str
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    def __post_init__(self) -> None:
        _check_addresses(self.bootstrap_servers)
        if self.security_protocol not in PROTOCOLS:
            raise BadConnectionError(
                f"security_protocol is {self.security_protocol!r}; it must be one of {', '.join(PROTOCOLS)}"
            )
        _check_login(self)
        _check_files(self)

    @property
    def encrypted(self) -> bool:
        return self.security_protocol.endswith("SSL")

    @property
    def authenticated(self) -> bool:
        return self.security_protocol.startswith("SASL")

    def kwargs(self) -> dict[str, Any]:
        """Keyword arguments that every aiokafka client (producer, consumer, admin) takes.

        Raises `BadConnectionError` when a certificate file cannot be used.
        """
        arguments: dict[str, Any] = {"bootstrap_servers": self.bootstrap_servers, "security_protocol": self.security_protocol}
        if self.encrypted:
            arguments["ssl_context"] = _ssl_context(self.ca_file, self.cert_file, self.key_file)
        if self.authenticated:
            arguments["sasl_mechanism"] = self.sasl_mechanism
            arguments["sasl_plain_username"] = self.username
            arguments["sasl_plain_password"] = self.password
        return arguments

    def __str__(self) -> str:
        login = f", {self.sasl_mechanism} as {self.username} with password ***" if self.authenticated else ""
        return f"{self.bootstrap_servers} ({self.security_protocol}{login})"


def _check_addresses(servers: str) -> None:
    addresses = [part.strip() for part in servers.split(",")]
    for address in addresses:
        match = _ADDRESS.fullmatch(address)
        if match is None or not 0 < int(match[2]) <= _HIGHEST_PORT:
            # Not echoed whole: people paste URLs with passwords here.
            shown = address.rsplit("@", 1)[-1]
            raise BadConnectionError(f"bootstrap_servers has {shown!r}; write host:port, several separated by commas")


def _check_login(connection: Connection) -> None:
    if not connection.authenticated:
        given = [name for name in ("sasl_mechanism", "username", "password") if getattr(connection, name) is not None]
        if given:
            protocol = connection.security_protocol
            raise BadConnectionError(
                f"{', '.join(given)} given, but security_protocol {protocol} does not log in; use SASL_{protocol}"
            )
        return
    if connection.sasl_mechanism not in MECHANISMS:
        raise BadConnectionError(f"sasl_mechanism is {connection.sasl_mechanism!r}; it must be one of {', '.join(MECHANISMS)}")
    missing = [name for name in ("username", "password") if not getattr(connection, name)]
    if missing:
        raise BadConnectionError(f"security_protocol {connection.security_protocol} needs {' and '.join(missing)}")


def _check_files(connection: Connection) -> None:
    files = {name: getattr(connection, name) for name in ("ca_file", "cert_file", "key_file")}
    given = {name: path for name, path in files.items() if path is not None}
    if given and not connection.encrypted:
        protocol = connection.security_protocol
        raise BadConnectionError(
            f"{', '.join(given)} given, but security_protocol {protocol} does not encrypt; use SSL or SASL_SSL"
        )
    if connection.key_file is not None and connection.cert_file is None:
        raise BadConnectionError("key_file is given without cert_file")
    for name, path in given.items():
        if not path.is_file():
            raise BadConnectionError(f"{name}: there is no file {path}")


@lru_cache(maxsize=8)  # hundreds of producers share a connection; reading the authorities takes 10 ms each time
def _ssl_context(ca_file: Path | None, cert_file: Path | None, key_file: Path | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise BadConnectionError(f"ca_file {ca_file} is not a PEM bundle of certificates: {error}") from error
    if cert_file is not None:
        try:
            context.load_cert_chain(cert_file, key_file)
        except (OSError, ssl.SSLError) as error:
            raise BadConnectionError(
                f"cert_file {cert_file} and key_file {key_file} do not load as a PEM pair: {error}"
            ) from error
    return context
