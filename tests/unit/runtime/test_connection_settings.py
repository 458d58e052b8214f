import dataclasses
import ssl

import pytest

from services.runtime.connection import BadConnectionError, Connection

LOGIN = {"sasl_mechanism": "SCRAM-SHA-512", "username": "ada", "password": "opensesame"}


@pytest.mark.parametrize("servers", ["localhost:9092", "a:1,b:2", "a:1, b:2", "[::1]:9092", "broker-0.kafka.svc:65535"])
def test_addresses_are_accepted_as_kafka_writes_them(servers):
    assert Connection(servers).kwargs() == {"bootstrap_servers": servers, "security_protocol": "PLAINTEXT"}


@pytest.mark.parametrize("servers", ["", "localhost", "a:1,", "a:0", "a:65536", "kafka://a:1", "a:b", "a b:1", "::1:9092"])
def test_addresses_that_are_none_are_refused(servers):
    with pytest.raises(BadConnectionError, match="write host:port"):
        Connection(servers)


def test_a_password_pasted_into_the_address_is_not_repeated():
    with pytest.raises(BadConnectionError) as refused:
        Connection("sasl://ada:opensesame@host:9092/x")
    assert "opensesame" not in str(refused.value)


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_login_reaches_the_client_and_never_the_screen(protocol):
    connection = Connection("a:1", protocol, **LOGIN)
    arguments = connection.kwargs()
    assert arguments["sasl_mechanism"] == "SCRAM-SHA-512"
    assert (arguments["sasl_plain_username"], arguments["sasl_plain_password"]) == ("ada", "opensesame")
    for shown in (repr(connection), str(connection), f"{connection}"):
        assert "opensesame" not in shown
        assert "ada" in shown


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"security_protocol": "ssl"}, "must be one of PLAINTEXT, SSL"),
        ({**LOGIN}, "does not log in; use SASL_PLAINTEXT"),
        ({**LOGIN, "security_protocol": "SSL"}, "use SASL_SSL"),
        ({**LOGIN, "security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"}, "sasl_mechanism is 'GSSAPI'"),
        ({**LOGIN, "security_protocol": "SASL_SSL", "sasl_mechanism": None}, "must be one of PLAIN"),
        ({**LOGIN, "security_protocol": "SASL_SSL", "password": None}, "needs password"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, "needs username and password"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, message):
    with pytest.raises(BadConnectionError, match=message) as refused:
        Connection("a:1", **settings)
    assert "opensesame" not in str(refused.value)


def test_certificates_without_encryption_or_without_a_file_are_refused(tmp_path):
    there = tmp_path / "ca.pem"
    there.write_text("nonsense")
    with pytest.raises(BadConnectionError, match="ca_file given, but security_protocol PLAINTEXT does not encrypt"):
        Connection("a:1", ca_file=there)
    with pytest.raises(BadConnectionError, match=r"cert_file: there is no file .*absent\.pem"):
        Connection("a:1", "SSL", cert_file=tmp_path / "absent.pem")
    with pytest.raises(BadConnectionError, match="key_file is given without cert_file"):
        Connection("a:1", "SSL", key_file=there)
    with pytest.raises(BadConnectionError, match=r"ca_file .*ca\.pem is not a PEM bundle"):
        Connection("a:1", "SSL", ca_file=there).kwargs()
    with pytest.raises(BadConnectionError, match="do not load as a PEM pair"):
        Connection("a:1", "SSL", cert_file=there, key_file=there).kwargs()


def test_encryption_checks_the_brokers_name_and_certificate_and_is_prepared_once():
    context = Connection("a:1", "SSL").kwargs()["ssl_context"]
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert Connection("b:2", "SSL").kwargs()["ssl_context"] is context


def test_a_connection_is_frozen_and_can_key_a_cache():
    connection = Connection("a:1", "SASL_PLAINTEXT", **LOGIN)
    assert {connection: 1}[Connection("a:1", "SASL_PLAINTEXT", **LOGIN)] == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        connection.password = "x"
