"""What can go wrong with a local broker, in words for the person who started it."""

from __future__ import annotations


class BrokerError(Exception):
    """The local broker cannot be prepared, started or stopped. The message says why and what to do."""


class BrokerBusyError(BrokerError):
    """Another process holds this data directory."""

    def __init__(self, message: str, pid: int | None) -> None:
        super().__init__(message)
        self.pid = pid
