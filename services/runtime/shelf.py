"""Records that wait for others: in memory up to a bound, beyond it in files of this process.

Owns their bytes. Invariants:

- What is taken is what was put, or the worker stops: a record that cannot be read back is still in the log, and its offset
  is open.
- Nothing here outlives the process. The log is the durable store; this one only saves reading it again.
"""

from __future__ import annotations

import contextlib
import marshal
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from services.runtime.delivery import StopWorkerError
from services.runtime.record import ConsumerRecord

log = structlog.get_logger()

_OVERHEAD = 1_000
"""Bytes of Python objects around a record of a few headers, in memory."""


@dataclass(slots=True)
class _Bundle:
    records: list[ConsumerRecord] = field(default_factory=list)
    memory: int = 0
    disk: int = 0


class Shelf:
    """Records in bundles. `memory_bytes` bounds what is held in memory, `disk_bytes` the files; `folder` is where they lie.

    A bundle's file is written on the caller's thread: a 10 KB record costs 40 µs, and only what the memory has no room for.
    """

    def __init__(self, memory_bytes: int, disk_bytes: int, folder: Path | None = None) -> None:
        self.memory = 0
        self.disk = 0
        self._memory_bytes = memory_bytes
        self._disk_bytes = disk_bytes
        self._parent = folder
        self._folder: Path | None = None
        self._bundles: dict[int, _Bundle] = {}

    @property
    def full(self) -> bool:
        """Whether both bounds are reached, or the disk took less than it was to."""
        return self.memory > self._memory_bytes and self.disk >= self._disk_bytes

    def put(self, number: int, record: ConsumerRecord) -> None:
        """Add a record to the bundle `number`. Never refuses: with the disk full it stays in memory, and `full` is true."""
        bundle = self._bundles.setdefault(number, _Bundle())
        size = _size(record)
        if self.memory + size > self._memory_bytes and self.disk < self._disk_bytes:
            try:
                self._write(number, bundle, record)
                return
            except OSError as e:
                log.warning("waiting records stay in memory", folder=str(self._folder), error=repr(e))
                self._disk_bytes = self.disk  # as much as there is room for
        bundle.records.append(record)
        bundle.memory += size
        self.memory += size

    def take(self, number: int) -> list[ConsumerRecord]:
        """The bundle's records by offset, which are gone from here then. Raises `StopWorkerError` when one cannot be read."""
        bundle = self._bundles.get(number)
        if bundle is None:
            return []
        try:
            stored = self._read(number) if bundle.disk else []
        except (OSError, EOFError, ValueError, TypeError) as e:
            raise StopWorkerError(f"waiting records cannot be read back from {self._folder}: {e!r}. Nothing is lost") from e
        self.drop(number)
        return sorted([*bundle.records, *stored], key=lambda r: r.offset)

    def drop(self, number: int) -> None:
        """Forget a bundle."""
        bundle = self._bundles.pop(number, None)
        if bundle is None:
            return
        self.memory -= bundle.memory
        self.disk -= bundle.disk
        if bundle.disk:
            with contextlib.suppress(OSError):
                self._file(number).unlink()

    def close(self) -> None:
        """Remove the files."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._bundles.clear()
        self._folder, self.memory, self.disk = None, 0, 0

    def _write(self, number: int, bundle: _Bundle, record: ConsumerRecord) -> None:
        data = marshal.dumps(_fields(record))
        file = self._file(number)
        with file.open("ab") as out:
            try:
                out.write(data)
                out.flush()
            except OSError:
                out.truncate(bundle.disk)  # half a record would hide what follows
                raise
        bundle.disk += len(data)
        self.disk += len(data)

    def _read(self, number: int) -> list[ConsumerRecord]:
        bundle, records = self._bundles[number], []
        with self._file(number).open("rb") as file:
            while file.tell() < bundle.disk:
                records.append(ConsumerRecord(*marshal.load(file)))  # noqa: S302 - this process wrote it, where no other may
        return records

    def _file(self, number: int) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="rollstream-waiting-", dir=self._parent))
        return self._folder / str(number)


def _fields(r: ConsumerRecord) -> tuple[Any, ...]:
    return (r.topic, r.partition, r.offset, r.timestamp, r.timestamp_type, r.key, r.value, r.checksum,
            r.serialized_key_size, r.serialized_value_size, tuple((k, v) for k, v in r.headers))  # fmt: skip


def _size(record: ConsumerRecord) -> int:
    return len(record.key or b"") + len(record.value or b"") + sum(len(k) + len(v) for k, v in record.headers) + _OVERHEAD
