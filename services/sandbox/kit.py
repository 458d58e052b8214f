"""The files that every isolated place needs: the supervisor, compiled, and a password file without secrets.

Invariant: the directory is readable by everyone, writable by the worker's user alone, and gone with the worker; what a killed
worker left is removed by the next.
"""

from __future__ import annotations

import os
import py_compile
import re
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

SOURCES = ("supervisor", "confine")
PREFIX = "rollstream-sandbox-"

_OWNER = re.compile(rf"{PREFIX}(\d+)-(\d+)-")
"""The PID namespace and the process id: containers may share a folder and have the same numbers."""


class Kit:
    """A temporary directory with the compiled programs (compiling them at each start would cost milliseconds)."""

    def __init__(self) -> None:
        remove_orphans(Path(tempfile.gettempdir()))
        self.directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{_namespace()}-{os.getpid()}-"))
        self.directory.chmod(0o755)
        for name in SOURCES:
            self.store(f"{name}.pyc", _compiled(name))
        (self.directory / "passwd").write_text("root:x:0:0::/nonexistent:/bin/false\nnobody:x:65534:65534::/tmp:/bin/sh\n")
        for file in self.directory.iterdir():
            file.chmod(0o644)

    def path(self, name: str) -> str:
        """Where the file of that name is."""
        return str(self.directory / name)

    def store(self, name: str, data: bytes) -> str:
        """Keep `data` there too; its path."""
        file = self.directory / name
        file.write_bytes(data)
        return str(file)

    def remove(self) -> None:
        """Remove it, with the scratch directories in it."""
        shutil.rmtree(self.directory, ignore_errors=True)


def remove_orphans(folder: Path) -> None:
    """Remove our user's kits whose worker is no more."""
    for path in folder.glob(f"{PREFIX}*"):
        owner = _OWNER.match(path.name)
        with suppress(OSError):
            ours = path.lstat().st_uid == os.geteuid() and not path.is_symlink()
            if owner and ours and int(owner[1]) == _namespace() and not psutil.pid_exists(int(owner[2])):
                shutil.rmtree(path, ignore_errors=True)


@cache
def _compiled(name: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        target = py_compile.compile(str(Path(__file__).parent / f"{name}.py"), f"{folder}/c", dfile=f"{name}.py", doraise=True)
        return Path(str(target)).read_bytes()


def _namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino
