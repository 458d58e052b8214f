"""Where claims lie: a local directory, or any file system fsspec knows.

Owns reading and writing whole named blobs, blocking. Invariant: a name is either absent or holds all of what was last
written to it; nobody ever sees half a blob, however many write it at once and whenever one of them is killed.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

_PERMANENT = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR}
)
_USERINFO = re.compile(r"//[^/@\s]*@")


_EMPTY_FOR_S = 3600.0
"""An empty directory goes when nothing has happened in it for an hour: a writer that has just made it must find it."""


class Blobs(Protocol):
    """A store of named blobs. `where` describes it to a person, without credentials; `local`: it is a mounted directory."""

    where: str
    local: bool

    def write(self, name: str, data: bytes) -> None:
        """Store `data` whole under `name`; raises whatever the file system raises."""
        ...

    def read(self, name: str) -> bytes:
        """All bytes of `name`; raises `FileNotFoundError` when there is none."""
        ...


def open_blobs(url: str) -> Blobs:
    """The store at `url`: a path, `file://`, or any URL of an installed fsspec file system (`s3://`, `gs://`, `memory://`)."""
    if "://" not in url and "::" not in url:
        return Directory(Path(url).expanduser())
    if url.startswith("file://"):
        return Directory(Path(unquote(url.removeprefix("file://"))))
    return Remote(url)


def is_permanent(error: Exception) -> bool:
    """Whether trying again cannot help: no space, no permission."""
    return isinstance(error, OSError) and error.errno in _PERMANENT


class Directory:
    """Claims as files below a local (or mounted) directory.

    Written to a temporary name and renamed, without fsync: Kafka acknowledges a record without fsync too, and a claim
    need not outlive what the record that refers to it does not. After a power cut a claim may be empty or torn; its
    size and CRC then fail, so the rollout ends as a failure and never continues with wrong bytes.
    """

    local = True

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.where = str(self.root)
        # Process ids repeat between containers that share a volume; a random token does not.
        self._token = secrets.token_hex(8)
        self._numbers = itertools.count()
        self._walk = _entries(self.root)

    def write(self, name: str, data: bytes) -> None:
        path = self.root / name
        temporary = path.parent / f".{self._token}-{next(self._numbers)}.tmp"
        try:
            self._create(temporary, data)
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def sweep(self, older_than_s: float, limit: int, now: float | None = None) -> int:
        """Remove files not written for `older_than_s` seconds, and the directories this empties; returns how many files.

        Looks at no more than `limit` entries and goes on there at the next call, so a store of millions is swept in
        small pieces.
        """
        now = time.time() if now is None else now
        removed = 0
        for _ in range(limit):
            entry = next(self._walk, None)
            if entry is None:
                self._walk = _entries(self.root)
                break
            removed += _remove_if_old(entry, now - older_than_s, now - _EMPTY_FOR_S)
        return removed

    @staticmethod
    def _create(path: Path, data: bytes) -> None:
        for last in (False, False, True):  # a sweep may remove the directory, empty at that moment, between the two steps
            try:
                with path.open("xb", buffering=0) as file:
                    view = memoryview(data)
                    while view:
                        view = view[file.write(view) :]
                return
            except FileNotFoundError:
                if last:
                    raise
                path.parent.mkdir(parents=True, exist_ok=True)


class Remote:
    """Claims in an fsspec file system; an object store replaces an object whole, which is all that is asked of it."""

    local = False

    def __init__(self, url: str) -> None:
        import fsspec  # 0.2 s to import, and a local store does without

        self.where = _USERINFO.sub("//***@", url.rstrip("/"))
        filesystem, root = fsspec.core.url_to_fs(url)  # type: ignore[no-untyped-call]
        self._fs: Any = filesystem
        self._root = str(root).rstrip("/")

    def write(self, name: str, data: bytes) -> None:
        path = f"{self._root}/{name}"
        try:
            self._fs.pipe_file(path, data)
        except FileNotFoundError:  # a file system with real directories
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._fs.pipe_file(path, data)

    def read(self, name: str) -> bytes:
        return bytes(self._fs.cat_file(f"{self._root}/{name}"))


def _entries(folder: str | Path) -> Iterator[os.DirEntry[str]]:
    """Everything below `folder`, children before their directory; links are not followed."""
    try:
        with os.scandir(folder) as found:
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    yield from _entries(entry.path)
                yield entry
    except FileNotFoundError:
        return  # swept by another worker


def _remove_if_old(entry: os.DirEntry[str], before: float, empty_before: float) -> int:
    with suppress(OSError):  # another worker was faster, or the directory is not empty
        changed = entry.stat(follow_symlinks=False).st_mtime
        if entry.is_dir(follow_symlinks=False):
            if changed < empty_before:
                Path(entry.path).rmdir()
        elif changed < before:
            Path(entry.path).unlink()
            return 1
    return 0
