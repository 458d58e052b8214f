from pathlib import Path

import pytest

from rollstream.broker.errors import BrokerError
from rollstream.broker.local import _check_path, _cluster_id, _free_ports
from rollstream.broker.paths import Layout
from rollstream.broker.properties import Ports, _escaped, server_properties
from schemas.topics import ALL


def parsed(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


def test_only_this_machine_can_connect():
    settings = parsed(server_properties(Path("/data"), Ports(9092, 9093)))
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9092"


def test_every_declared_topic_fits_through_the_brokers_limits():
    settings = parsed(server_properties(Path("/data"), Ports(1, 2)))
    largest = max(spec.max_message_bytes for spec in ALL)
    for limit in ("message.max.bytes", "replica.fetch.max.bytes", "fetch.max.bytes", "socket.request.max.bytes"):
        assert int(settings[limit]) > largest


@pytest.mark.parametrize(
    ("value", "escaped"),
    [
        ("/a b", "/a b"),
        (" a", "\\ a"),
        ("a\\b", "a\\\\b"),
        ("é", "\\u00e9"),
        ("😀", "\\ud83d\\ude00"),
        ("a\nb", "a\\u000ab"),
        (7, "7"),
    ],
)
def test_values_are_written_as_java_reads_them(value, escaped):
    assert _escaped(value) == escaped


def test_a_comma_in_the_directory_is_refused_since_kafka_would_see_two():
    with pytest.raises(BrokerError, match="comma"):
        _check_path(Layout(Path("/a,b")))


def test_cluster_identities_are_what_kafka_accepts():
    identities = {_cluster_id() for _ in range(500)}
    assert len(identities) == 500
    assert all(len(identity) == 22 and not identity.startswith("-") for identity in identities)


def test_free_ports_differ():
    ports = _free_ports()
    assert ports.broker != ports.controller
