"""Records whose header names are not UTF-8, which clients in other languages may write.

aiokafka raises `UnicodeDecodeError` in the middle of a fetch then, at every try, and the partition stands still: one record
would stop a stage. Owns the seam at which such a batch is read again, with escapes for what is not UTF-8 in a name.
Invariant: any other batch is read by aiokafka's own code, and what it can decode is what it would be without us.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.memory_records import MemoryRecords

_LENGTH_AT, _LENGTH_END = 8, 12
"""Where a record batch holds the number of bytes that follow its length (Kafka protocol, "Record Batch")."""


def install() -> None:
    """Let the consumers of this process read such records. Doing it twice changes nothing."""
    fetcher.MemoryRecords = ForgivingRecords  # type: ignore[attr-defined,assignment] # its seam, though not a public one


class ForgivingRecords:
    """aiokafka's `MemoryRecords`: the batches in a fetched piece of the log."""

    __slots__ = ("_at", "_data", "_records")

    def __init__(self, data: bytes) -> None:
        self._records = MemoryRecords(data)
        self._data = data
        self._at = 0

    def size_in_bytes(self) -> int:
        return self._records.size_in_bytes()

    def has_next(self) -> bool:
        return self._records.has_next()

    def next_batch(self) -> _Batch | None:
        batch = self._records.next_batch()
        if batch is None:
            return None
        begin = self._at
        self._at = begin + _LENGTH_END + int.from_bytes(self._data[begin + _LENGTH_AT : begin + _LENGTH_END])
        return _Batch(batch, memoryview(self._data)[begin : self._at])


class _Batch:
    """One batch: aiokafka's, until it cannot go on."""

    __slots__ = ("_batch", "_data")

    def __init__(self, batch: Any, data: memoryview) -> None:
        self._batch = batch
        self._data = data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        return next(self._batch)  # aiokafka looks into control batches so

    def __iter__(self) -> Iterator[Any]:
        read = 0
        try:
            for record in self._batch:
                read += 1
                yield record
        except UnicodeDecodeError:
            yield from itertools.islice(_escaped(self._data), read, None)


def _escaped(data: memoryview) -> Iterator[Any]:
    """The records of a batch, by aiokafka's parser in Python, over bytes that always decode."""
    batch = _DefaultRecordBatchPy(data)
    batch._maybe_uncompress()  # noqa: SLF001 - there is no public way
    batch._buffer = _Escaping(batch._buffer)  # noqa: SLF001
    return iter(batch)


class _Escaping(bytearray):
    """Bytes whose slices decode with escapes for what is not UTF-8; only header names are decoded."""

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return _Escaping(found) if isinstance(key, slice) else found

    def decode(self, encoding: str = "utf-8", errors: str = "backslashreplace") -> str:
        return super().decode(encoding, errors)
