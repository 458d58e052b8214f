"""Where whole files go: a local directory, or an object store by fsspec URL.

Invariant: a name is absent or holds a whole file; a file that is there when `put` returns survives a power cut (as far
as the object store promises it).
"""

from __future__ import annotations

import asyncio
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

from services.sink.disk import Disk, write_all


class Store(Protocol):
    """Whole files by relative name. `where` describes it to a person, without credentials."""

    where: str

    async def exists(self, name: str) -> bool: ...

    async def put(self, name: str, data: bytes) -> None:
        """Store `data` whole under `name`; raises `OSError` or what the file system raises."""
        ...


def open_store(root: str | Path) -> Store:
    """The store at a path, a `file://` URL, or the URL of an installed fsspec file system (`s3://`, `gs://`, `memory://`)."""
    text = str(root)
    if text.startswith("file://"):
        return LocalStore(Path(unquote(text.removeprefix("file://"))))
    return RemoteStore(text) if "://" in text else LocalStore(Path(text))


class LocalStore:
    """Files below a directory: written under a temporary name, synced, renamed, and the name synced."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.where = str(root)
        self._disk = Disk()

    async def exists(self, name: str) -> bool:
        return await asyncio.to_thread((self._root / name).exists)

    async def put(self, name: str, data: bytes) -> None:
        await asyncio.to_thread(self._put, self._root / name, data)

    def _put(self, path: Path, data: bytes) -> None:
        self._make(path.parent)
        # Random: a writer that was stopped and comes back may be writing the same file at the same time.
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        try:
            self._write(temporary, data)
            self._disk.replace(temporary, path)
            self._disk.sync_directory(path.parent)
        finally:
            for left in path.parent.glob(f".{path.name}.*.tmp"):  # ours, or of a writer killed before us
                with suppress(OSError):
                    left.unlink()

    def _write(self, path: Path, data: bytes) -> None:
        fd = self._disk.create(path)
        try:
            write_all(self._disk, fd, data)
            self._disk.sync(fd)
        finally:
            os.close(fd)

    def _make(self, folder: Path) -> None:
        """Make a directory and its parents, each name synced."""
        if not folder.is_dir():
            self._make(folder.parent)
            folder.mkdir(exist_ok=True)
            self._disk.sync_directory(folder.parent)


class RemoteStore:
    """Objects below an fsspec URL; one put an object."""

    def __init__(self, url: str) -> None:
        import fsspec  # 0.2 s to import, and a local directory does without

        self._fs: Any
        self._fs, root = fsspec.core.url_to_fs(url)  # type: ignore[no-untyped-call]
        self._root = str(root).rstrip("/")
        scheme, _, rest = url.partition("://")
        self.where = f"{scheme}://{rest.rpartition('@')[2]}"

    async def exists(self, name: str) -> bool:
        return bool(await asyncio.to_thread(self._exists, f"{self._root}/{name}"))

    async def put(self, name: str, data: bytes) -> None:
        await asyncio.to_thread(self._put, f"{self._root}/{name}", data)

    def _exists(self, path: str) -> bool:
        self._fs.invalidate_cache(path.rpartition("/")[0])
        return bool(self._fs.exists(path))

    def _put(self, path: str, data: bytes) -> None:
        try:
            self._fs.pipe_file(path, data)
        except FileNotFoundError:  # a file system with real directories
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._fs.pipe_file(path, data)
