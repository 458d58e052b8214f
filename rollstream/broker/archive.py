"""The archive of classes linked ahead of time (Java 25's AOT cache), which brings Kafka's start from 2 s to under 1.

Owns its name and when it is made (`train` makes it). Invariants: it only ever changes speed (the JVM checks it against
its options and class path, and goes on without it when they differ); a half-written one is never visible under its name;
making one never delays a start, since it happens in a process of its own, in the background, at the lowest priority, once.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rollstream.broker.java import Java
from rollstream.broker.paths import cache_dir

SUFFIX = ".aot"


def archive_path(java: Java, jars: Sequence[Path], heap: str) -> Path | None:
    """Where the archive for this runtime, these options and these jars is or will be. None when Java is not ours."""
    if not java.packaged:
        return None  # the options differ between versions of Java
    parts = [str(java.launcher), java.version, *java.options(heap), *map(str, jars)]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    return cache_dir() / f"java-{java.version}-{digest}{SUFFIX}"


def train_in_background(archive: Path, *, outlive: bool) -> subprocess.Popen[bytes]:
    """Start making the archive. Unless `outlive`, the maker ends with this process and leaves nothing behind."""
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "rollstream.broker.train", str(archive)],
        stdin=subprocess.DEVNULL if outlive else subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
