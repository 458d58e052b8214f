"""Whose a left-over of this machine is: the mark in the names of directories and control groups that a worker makes.

Invariant: what carries the mark of a process that may be alive is no left-over: another PID namespace's numbers say nothing
here, and a number that was given anew is told by when its process started.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

PATTERN = r"(\d+)-(\d+)-(\d+)"
"""What `mark` looks like: process id, start in clock ticks since boot, PID namespace."""


def mark() -> str:
    """This process's mark."""
    return f"{os.getpid()}-{_started(os.getpid())}-{_namespace()}"


def is_gone(pid: int, started: int, namespace: int) -> bool:
    """Whether the process of a mark was one of this namespace and is no more."""
    try:
        return namespace == _namespace() and _started(pid) != started
    except OSError:  # a process that we may not look at
        return False


def _started(pid: int) -> int:
    """Field 22 of /proc/PID/stat (proc(5)); -1 when there is no such process."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19])
    except (FileNotFoundError, ProcessLookupError):
        return -1


@cache
def _namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino
