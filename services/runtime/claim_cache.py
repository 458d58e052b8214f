"""Bytes a worker stored or fetched lately, kept in memory up to a bound.

Invariant: the sum of all entries, their bookkeeping included, never exceeds the limit; what was used longest ago goes first.
"""

from __future__ import annotations

from collections import OrderedDict

ENTRY_OVERHEAD = 256
"""Bytes an entry costs beside its data (name of about 70 characters, dictionary slot, object headers): without it a
cache of many tiny claims would hold several times its limit."""


class ByteCache:
    """Least-recently-used map from name to bytes. Not thread-safe: it belongs to one event loop."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self._entries: OrderedDict[str, bytes] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: str) -> bytes | None:
        data = self._entries.get(name)
        if data is not None:
            self._entries.move_to_end(name)
        return data

    def put(self, name: str, data: bytes) -> None:
        """Keep `data`; one larger than the whole cache is not kept."""
        self.drop(name)
        if len(data) + ENTRY_OVERHEAD > self.limit:
            return
        self._entries[name] = data
        self.held += len(data) + ENTRY_OVERHEAD
        while self.held > self.limit:
            self.drop(next(iter(self._entries)))

    def drop(self, name: str) -> None:
        data = self._entries.pop(name, None)
        if data is not None:
            self.held -= len(data) + ENTRY_OVERHEAD
