"""The files that every isolated place needs: the supervisor, compiled, and a password file without secrets.

Invariant: the directory is readable by everyone, writable by the worker's user alone, and gone with the worker; what a killed
worker left is removed by the next.
"""

from __future__ import annotations

import os
import py_compile
import re
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

import structlog

from services.sandbox import owner
from services.sandbox.removal import remove_tree

log = structlog.get_logger()

SOURCES = ("supervisor", "confine")
PREFIX = "rollstream-sandbox-"

_OWNER = re.compile(rf"{PREFIX}{owner.PATTERN}-")
"""Containers may share a folder and have the same numbers of processes."""

NOTHING: Mapping[str, bytes] = MappingProxyType({})

_told: set[str] = set()


class Kit:
    """A temporary directory with the compiled programs (compiling them at each start would cost milliseconds), and `more`."""

    def __init__(self, more: Mapping[str, bytes] = NOTHING) -> None:
        remove_orphans(Path(tempfile.gettempdir()))
        self.directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{owner.mark()}-"))
        try:
            self._fill(more)
        except BaseException:
            self.remove()
            raise

    def _fill(self, more: Mapping[str, bytes]) -> None:
        self.directory.chmod(0o755)
        for name, data in {**{f"{name}.pyc": _compiled(name) for name in SOURCES}, **more}.items():
            (self.directory / name).write_bytes(data)
        (self.directory / "passwd").write_text("root:x:0:0::/nonexistent:/bin/false\nnobody:x:65534:65534::/tmp:/bin/sh\n")
        for file in self.directory.iterdir():
            file.chmod(0o644)

    def path(self, name: str) -> str:
        """Where the file of that name is."""
        return str(self.directory / name)

    def remove(self) -> None:
        """Remove it, with the scratch directories in it. Never raises."""
        clear(self.directory)


def remove_orphans(folder: Path) -> None:
    """Remove our user's kits whose worker is no more. Never raises: what cannot be removed is said, once."""
    try:
        for path in folder.glob(f"{PREFIX}*"):
            if _is_orphan(path):
                clear(path)
    except OSError as error:
        _tell(folder, error)


def clear(path: Path) -> None:
    """Remove a directory of ours. Never raises: what cannot be removed is said, once for each path."""
    error = remove_tree(path)
    if error is not None:
        _tell(path, error)


def _is_orphan(path: Path) -> bool:
    made_by = _OWNER.match(path.name)
    if made_by is None or path.is_symlink() or path.stat().st_uid != os.geteuid():
        return False
    return owner.is_gone(*map(int, made_by.groups()))


def _tell(path: Path, error: OSError) -> None:
    if str(path) not in _told:
        _told.add(str(path))
        log.warning("sandbox.not_removed", path=str(path), error=str(error))


@cache
def _compiled(name: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        target = py_compile.compile(str(Path(__file__).parent / f"{name}.py"), f"{folder}/c", dfile=f"{name}.py", doraise=True)
        return Path(str(target)).read_bytes()
