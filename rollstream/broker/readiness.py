"""When a broker that was just started can be used.

Invariant: returns only after the node has registered, answers for itself and has both coordinators; never waits past
its deadline, and not at all for a process that has ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from rollstream.broker.errors import BrokerError
from rollstream.broker.properties import HOST, Ports
from services.runtime.connection import Connection

_POLL_S = 0.01
_GROUP, _TRANSACTION = 0, 1  # Kafka's coordinator types


async def wait_ready(ports: Ports, check_alive: Callable[[], None], *, timeout_s: float) -> None:
    """Wait until clients can produce, join groups and open transactions.

    `check_alive` raises when waiting further is pointless. Raises `BrokerError` after `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    from aiokafka import admin as _  # noqa: F401  takes 0.2 s, which the JVM needs anyway

    while not await _port_open(ports.broker):
        await _pause(check_alive, deadline, "did not open its port")
    while not await _answers(Connection(ports.bootstrap)):
        await _pause(check_alive, deadline, "did not become ready")
    check_alive()  # an answer from someone else's broker on the same port would not count


async def _pause(check_alive: Callable[[], None], deadline: float, what: str) -> None:
    check_alive()
    if time.monotonic() > deadline:
        raise BrokerError(f"the local broker {what} in time")
    await asyncio.sleep(_POLL_S)


async def _port_open(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return False
    writer.close()
    return True


async def _answers(connection: Connection) -> bool:
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.errors import KafkaError

    admin = AIOKafkaAdminClient(**connection.kwargs(), request_timeout_ms=5_000)
    try:
        await admin.start()
        if not (await admin.describe_cluster())["brokers"]:
            return False
        # Asking creates Kafka's internal topics, which would otherwise delay the first worker.
        coordinators = [await admin.find_coordinator("rollstream-ready", kind) for kind in (_GROUP, _TRANSACTION)]
        return all(node >= 0 for node in coordinators)
    except (KafkaError, OSError):
        return False
    finally:
        await admin.close()
