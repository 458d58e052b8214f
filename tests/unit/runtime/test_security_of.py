"""FastStream's security object says what aiokafka's keyword arguments say."""

import ssl

import pytest
from faststream.kafka.security import parse_security

from services.runtime.connection import Connection
from services.runtime.security import security_of

LOGIN = {"username": "me", "password": "secret"}


def test_a_plain_connection_needs_none():
    assert security_of(Connection("a:1")) is None


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_login_reaches_aiokafka_as_it_was_given(protocol, mechanism):
    connection = Connection("a:1", protocol, sasl_mechanism=mechanism, **LOGIN)
    found, expected = parse_security(security_of(connection)), connection.kwargs()
    for name in ("security_protocol", "sasl_mechanism", "sasl_plain_username", "sasl_plain_password"):
        assert found[name] == expected[name]
    assert isinstance(found.get("ssl_context"), ssl.SSLContext) == (protocol == "SASL_SSL")


def test_encryption_without_a_login():
    found = parse_security(security_of(Connection("a:1", "SSL")))
    assert found["security_protocol"] == "SSL"
    assert isinstance(found["ssl_context"], ssl.SSLContext)
