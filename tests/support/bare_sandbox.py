"""A sandbox without isolation for tests: runs a program as the isolating ones do, in a directory of its own.

Only for programs that a test wrote.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from environments.context import PYTHON, Limits, SandboxResult


class BareSandbox:
    """Runs `argv` as a plain child process; of the limits only the wall clock holds."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        files: Mapping[str, bytes] | None = None,
        stdin: bytes = b"",
        limits: Limits = Limits(),
        collect: Sequence[str] = (),
    ) -> SandboxResult:
        words = [sys.executable if word == PYTHON else word for word in argv]
        with tempfile.TemporaryDirectory() as folder:
            _write(Path(folder), files or {})
            ended = await _run(words, folder, stdin, limits.wall_s)
            return replace(ended, files=_read(Path(folder), collect))


async def _run(words: list[str], folder: str, stdin: bytes, wall_s: float) -> SandboxResult:
    pipe = asyncio.subprocess.PIPE
    begun = time.monotonic()
    process = await asyncio.create_subprocess_exec(*words, cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe)
    limit = ""
    talk = asyncio.ensure_future(process.communicate(stdin))
    try:
        stdout, stderr = await asyncio.wait_for(asyncio.shield(talk), wall_s)
    except TimeoutError:
        process.kill()
        (stdout, stderr), limit = await talk, "wall"
    return SandboxResult(process.returncode or 0, stdout, stderr, limit, wall_s=time.monotonic() - begun)


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _read(folder: Path, names: Sequence[str]) -> dict[str, bytes]:
    return {name: path.read_bytes() for name in names if (path := folder / name).is_file()}
