"""A real Apache Kafka on this machine, from packages: no Docker, no installed Java. Read `local` first."""

from rollstream.broker.detached import find_running, start_detached, status, stop
from rollstream.broker.errors import BrokerBusyError, BrokerError
from rollstream.broker.local import LocalBroker
from rollstream.broker.paths import default_data_dir
from rollstream.broker.state import BrokerInfo

__all__ = [
    "BrokerBusyError",
    "BrokerError",
    "BrokerInfo",
    "LocalBroker",
    "default_data_dir",
    "find_running",
    "start_detached",
    "status",
    "stop",
]
