"""The system calls by which the sink changes files.

One method a call, so that a test can fail or die at each of them. Invariant: `replace_file` leaves the old content or
the new, whole and durable, whenever it is interrupted.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_MODE = 0o644


class Disk:
    """The real one. Every method raises `OSError`."""

    def open(self, path: Path) -> int:
        """Descriptor for reading and appending; the file is made when it does not exist."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _MODE)

    def create(self, path: Path) -> int:
        """Descriptor for writing an empty file."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _MODE)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Number of bytes the system took, at least one."""
        return os.write(fd, data)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        os.fsync(fd)

    def replace(self, source: Path, target: Path) -> None:
        source.replace(target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def sync_directory(self, folder: Path) -> None:
        """Make names in `folder` durable."""
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def write_all(disk: Disk, fd: int, data: bytes) -> None:
    """Write all of `data`; the system may take it in pieces."""
    view = memoryview(data)
    while view:
        view = view[disk.write(fd, view) :]


def replace_file(path: Path, data: bytes, disk: Disk | None = None) -> None:
    """Replace the content of `path` atomically and durably: temporary file, fsync, rename, fsync of the directory.

    Two writers of one path must exclude each other by other means. Raises `OSError`; the old content stands then, and
    no temporary file is left.
    """
    disk = disk or Disk()
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        fd = disk.create(temporary)
        try:
            write_all(disk, fd, data)
            disk.sync(fd)
        finally:
            os.close(fd)
        disk.replace(temporary, path)
        disk.sync_directory(path.parent)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
