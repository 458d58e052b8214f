"""A launch in the words of the supervisor.

Invariant: every name of a file that reaches a supervisor stays below the working directory.
"""

from __future__ import annotations

import math
import resource
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from environments.context import PYTHON, Limits
from schemas.errors import DataError
from services.sandbox.backend import Launch

READ_FACTOR = 32
"""A program that writes this many times what is kept of its output is stopped: it would only cost time."""

MAX_NAME = 1_024


@dataclass(frozen=True, slots=True)
class Order:
    """What a box knows of its programs before it has one."""

    environment: Mapping[str, str]
    confine: Mapping[str, Any] | None = None
    scratch_counted: bool = False

    def of(self, launch: Launch) -> dict[str, Any]:
        """What the supervisor reads; plain values only. Raises `DataError` for what cannot be started anywhere."""
        check_names(launch.files)
        check_argv(launch.argv)
        limits = launch.limits
        return {
            "python": PYTHON,
            "argv": list(launch.argv),
            "env": dict(self.environment),
            "files": {name: bytes(data) for name, data in launch.files.items()},
            "stdin": bytes(launch.stdin),
            "channel": launch.channel,
            "output": limits.output,
            "output_total": READ_FACTOR * max(limits.output, 1),
            "cpu_s": limits.cpu_s,
            "scratch": limits.scratch if self.scratch_counted else 0,
            "confine": _confinement(self.confine, limits),
            "rlimits": rlimits_of(limits),
        }


def check_argv(argv: Sequence[str]) -> None:
    """Raises `DataError` for a command that no system can start."""
    if not argv or any("\0" in word for word in argv):
        raise DataError("a sandboxed command needs at least one word, and no word may hold a NUL character")


def check_names(names: Iterable[str]) -> None:
    """Raises `DataError` for a name that is absolute, climbs, is empty or cannot be a path."""
    for name in names:
        parts = name.split("/")
        if not name or len(name) > MAX_NAME or "\0" in name or any(part in {"", ".", ".."} for part in parts):
            raise DataError(f"{name[:100]!r} is no name for a file of a sandboxed program: it must stay in its directory")


def rlimits_of(limits: Limits) -> dict[int, int | tuple[int, int]]:
    """Limits of each process, by the number of the resource. The kernel counts whole seconds of processor time."""
    found: dict[int, int | tuple[int, int]] = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_AS: limits.memory,
        resource.RLIMIT_FSIZE: limits.file_size,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_NPROC: limits.processes + 1,
    }
    if limits.cpu_s is not None:
        seconds = math.ceil(limits.cpu_s)
        found[resource.RLIMIT_CPU] = (seconds, seconds + 1)
    return found


def _confinement(confine: Mapping[str, Any] | None, limits: Limits) -> dict[str, Any] | None:
    return None if confine is None else {**confine, "network": limits.network}
