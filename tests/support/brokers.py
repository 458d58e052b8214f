"""The three ways to a real Kafka for tests: one that was given, one in Docker, the local one from packages.

Invariant: every kind is an Apache Kafka; a kind that is not to be had says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

from support.loops import LoopThread

from rollstream.broker import LocalBroker
from rollstream.broker.jars import KAFKA_VERSION
from services.runtime.connection import Connection

GIVEN, DOCKER, LOCAL = "given", "docker", "local"
KINDS = (GIVEN, DOCKER, LOCAL)
SETTING = "KAFKA_BOOTSTRAP_SERVERS"

T = TypeVar("T")

_IMAGE = f"apache/kafka:{KAFKA_VERSION}"
_DOCKER_START_S = 120


def unavailable(kind: str) -> str | None:
    """Why a kind of broker cannot be had here, or None when it can."""
    if kind == GIVEN:
        return None if os.environ.get(SETTING) else f"{SETTING} is not set"
    if kind == DOCKER:
        return _no_engine()
    return None


def preferred() -> str:
    """The kind that the tests run on: given, else Docker, else local."""
    return next(kind for kind in KINDS if unavailable(kind) is None)


@contextlib.contextmanager
def broker(kind: str, data_dir: Path, loop: LoopThread) -> Iterator[Connection]:
    """A running broker of that kind. The local one keeps its data in `data_dir`."""
    if kind == GIVEN:
        yield Connection(os.environ[SETTING])
    elif kind == DOCKER:
        with _docker(loop) as connection:
            yield connection
    else:
        local = LocalBroker(data_dir)
        connection = loop.run(local.start())
        try:
            yield connection
        finally:
            loop.run(local.stop())


def _no_engine() -> str | None:
    try:
        import docker
        from docker.errors import DockerException
    except ImportError:
        return "the package docker is not installed"
    try:
        client = docker.from_env(timeout=5)
        try:
            client.ping()
        finally:
            client.close()
    except DockerException as error:
        return f"no Docker engine answers: {str(error)[:80]}"
    return None


@contextlib.contextmanager
def _docker(loop: LoopThread) -> Iterator[Connection]:
    from testcontainers.core.container import DockerContainer

    # The broker tells clients its own address, so the outer port has to be known before it starts.
    port = _free_port()
    container = DockerContainer(_IMAGE).with_bind_ports("9092/tcp", port).with_envs(**_environment(port))
    with container:
        connection = Connection(f"{container.get_container_host_ip()}:{port}")
        loop.run(_until_it_answers(connection))
        yield connection


def _environment(port: int) -> dict[str, str]:
    """The same broker settings as the local one's where tests depend on them, in the image's spelling."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "advertised.listeners": f"PLAINTEXT://localhost:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "message.max.bytes": str(34 << 20),
        "socket.request.max.bytes": str(128 << 20),
        "auto.create.topics.enable": "false",
    }
    return {"KAFKA_" + name.upper().replace(".", "_"): value for name, value in settings.items()}


async def _until_it_answers(connection: Connection) -> None:
    from services.runtime.admin import partitions_of

    await partitions_of(connection, [], timeout_s=_DOCKER_START_S)


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def unique_prefix() -> str:
    """A topic prefix that no other test, run or process uses."""
    return f"test-{os.getpid()}-{time.time_ns():x}"


async def eventually(ask: Callable[[], Awaitable[T]], expected: T, timeout_s: float = 20) -> T:
    """Ask until the answer is `expected`, or return the last answer after `timeout_s`.

    Kafka acknowledges the end of a transaction before it has marked every partition, so for some milliseconds readers
    of committed records, and of a group's offsets, still see what was before.
    """
    deadline = time.monotonic() + timeout_s
    while (answer := await ask()) != expected and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return answer
