"""The files that every isolated place needs: the supervisor, compiled, and a password file without secrets.

Invariant: the directory is readable by everyone, writable by the worker's user alone, and gone with the worker.
"""

from __future__ import annotations

import py_compile
import shutil
import tempfile
from pathlib import Path

SOURCES = ("supervisor", "confine")


class Kit:
    """A temporary directory with the compiled programs (compiling them at each start would cost milliseconds)."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="rollstream-sandbox-"))
        self.directory.chmod(0o755)
        here = Path(__file__).parent
        for name in SOURCES:
            py_compile.compile(str(here / f"{name}.py"), str(self.directory / f"{name}.pyc"), dfile=f"{name}.py", doraise=True)
        (self.directory / "passwd").write_text("root:x:0:0::/nonexistent:/bin/false\nnobody:x:65534:65534::/tmp:/bin/sh\n")
        for file in self.directory.iterdir():
            file.chmod(0o644)

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def store(self, name: str, data: bytes) -> str:
        """Keep `data` there too; its path."""
        file = self.directory / name
        file.write_bytes(data)
        return str(file)

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
