"""The broker's `server.properties`: one node that is broker and controller, on the loopback interface.

Owns every broker setting, with its reason. Invariant: nothing outside this machine can connect.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"

_MIB = 1 << 20
_LARGEST_MESSAGE = 34 * _MIB  # the largest topic allows 32 MiB; headers and framing come on top


@dataclass(frozen=True, slots=True)
class Ports:
    """Where clients connect, and where the node talks to its own controller."""

    broker: int
    controller: int

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.broker}"


def server_properties(log_dir: Path, ports: Ports) -> str:
    """The whole file, in Java's properties format."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in _settings(log_dir, ports).items())


def _settings(log_dir: Path, ports: Ports) -> dict[str, str | int]:
    return _node(log_dir, ports) | _ALONE | _SIZES | _TIMES


def _node(log_dir: Path, ports: Ports) -> dict[str, str | int]:
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{HOST}:{ports.controller}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listeners": f"PLAINTEXT://{HOST}:{ports.broker},CONTROLLER://{HOST}:{ports.controller}",
        "advertised.listeners": f"PLAINTEXT://{ports.bootstrap}",
        "log.dirs": str(log_dir),
    }


_ALONE: dict[str, str | int] = {
    # There is one node: every replica set has one member.
    "default.replication.factor": 1,
    "min.insync.replicas": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    # Kafka's 50 partitions each would be opened and recovered at every start.
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "share.coordinator.state.topic.num.partitions": 1,
    "num.network.threads": 2,
    "num.io.threads": 4,
    "background.threads": 2,
    "num.recovery.threads.per.data.dir": 2,
    # A misspelt topic should be an error, not a topic.
    "auto.create.topics.enable": "false",
}

_SIZES: dict[str, str | int] = {
    "message.max.bytes": _LARGEST_MESSAGE,
    "replica.fetch.max.bytes": _LARGEST_MESSAGE,
    "fetch.max.bytes": 64 * _MIB,
    "socket.request.max.bytes": 128 * _MIB,
    # Small segments let retention delete in small steps; the index is sized to the segment.
    "log.segment.bytes": 256 * _MIB,
    "log.index.size.max.bytes": 2 * _MIB,
    # Kafka reserves 128 MB of heap for its cleaner, a quarter of ours, for one compacted topic of a few records.
    "log.cleaner.dedupe.buffer.size": 8 * _MIB,
}

_TIMES: dict[str, str | int] = {
    "group.initial.rebalance.delay.ms": 0,
    # Killed workers are noticed within their session timeout, which is 3 to 6 s here; Kafka's floor is 6.
    "group.min.session.timeout.ms": 1_000,
    # Committed offsets outlive a long weekend: a run can be resumed a month later.
    "offsets.retention.minutes": 30 * 24 * 60,
    "transaction.max.timeout.ms": 15 * 60_000,
    # An abandoned transaction holds up every read-committed reader; Kafka looks only every 10 s.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
    # After kill -9 the controller waits this long before it believes that the old incarnation is gone.
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
}


def _escaped(value: str | int) -> str:
    """A value as Java's `Properties.load` reads it back: ASCII, backslashes doubled, leading space kept."""
    text = str(value).replace("\\", "\\\\")
    text = "".join(char if " " <= char <= "~" else _unicode_escape(char) for char in text)
    return f"\\{text}" if text.startswith(" ") else text


def _unicode_escape(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
