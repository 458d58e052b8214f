"""Memory and process counts of a whole tree, where this process may make control groups.

Invariant: a machine without writable groups is served as well as before, only without these limits; nothing here raises.
Source of the file names: Linux Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst.
"""

from __future__ import annotations

import itertools
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from services.sandbox import owner

ROOT = Path("/sys/fs/cgroup")

SUPERVISOR_BYTES = 24 << 20
"""What the supervisor itself takes, which the program's limit must not pay for."""

PREFIX = "rollstream-"

_OWNER = re.compile(rf"{PREFIX}{owner.PATTERN}-")
_names = itertools.count()


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Where groups can be made: one directory in version 2, one for each controller in version 1; none is none."""

    memory: Path | None = None
    pids: Path | None = None
    unified: bool = False

    @property
    def usable(self) -> bool:
        return self.memory is not None or self.pids is not None


@dataclass(slots=True)
class Group:
    """The group of one program. Made by `make`, emptied by killing, removed by `remove`."""

    memory: Path | None = None
    pids: Path | None = None
    unified: bool = False
    _removed: bool = field(default=False, repr=False)

    def begin(self, pid: int) -> None:
        """Make its directories and move the process there; raises `OSError`."""
        for directory in self._directories():
            directory.mkdir(exist_ok=True)
            (directory / "cgroup.procs").write_text(str(pid))

    def limit(self, memory: int, processes: int) -> None:
        """Set its limits: bytes; processes and threads, less the supervisor."""
        size = str(memory + SUPERVISOR_BYTES)
        files = {"memory.max": size, "memory.swap.max": "0"} if self.unified else {"memory.limit_in_bytes": size}
        wanted = [(self.memory, file, value) for file, value in files.items()] + [(self.pids, "pids.max", str(processes + 1))]
        for directory, file, value in wanted:
            if directory:
                with suppress(OSError):
                    (directory / file).write_text(value)

    def _directories(self) -> set[Path]:
        return {directory for directory in (self.memory, self.pids) if directory}

    @property
    def out_of_memory(self) -> bool:
        """Whether the kernel killed something in it for its memory."""
        if self.memory is None:
            return False
        text = _read(self.memory / ("memory.events" if self.unified else "memory.oom_control"))
        return any(line.startswith("oom_kill ") and line.split()[1] != "0" for line in text.splitlines())

    def remove(self) -> None:
        """Remove it; a process that is still going away is waited for, for a moment."""
        if self._removed:
            return
        self._removed = True
        for directory in self._directories():
            for _ in range(20):
                try:
                    directory.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.001)


def find(root: Path = ROOT, own: str | None = None) -> Hierarchy:
    """The hierarchy in which this process may make groups, tried by making one. What killed workers left there is removed."""
    found = _found(root, own)
    for place in {place for place in (found.memory, found.pids) if place}:
        remove_orphans(place)
    return found


def remove_orphans(place: Path) -> None:
    """Remove the groups of workers that are no more; one with processes in it stays, for the kernel refuses. Never raises.

    Looked for here and in the groups beside: a worker that is started again may have got a group of another name.
    """
    with suppress(OSError):
        for group in [*place.glob(f"{PREFIX}*"), *place.parent.glob(f"*/{PREFIX}*")]:
            made_by = _OWNER.match(group.name)
            if made_by and owner.is_gone(*map(int, made_by.groups())):
                with suppress(OSError):
                    group.rmdir()


def _found(root: Path, own: str | None) -> Hierarchy:
    own = _read(Path("/proc/self/cgroup")) if own is None else own
    parts = [line.split(":", 2) for line in own.splitlines() if line.count(":") > 1]
    places = {name: path for _, names, path in parts for name in names.split(",")}
    if (root / "cgroup.controllers").exists():
        return _unified(root / places.get("", "/").lstrip("/"))
    memory, pids = (
        _makeable(root / name / places[name].lstrip("/")) if name in places else None for name in ("memory", "pids")
    )
    return Hierarchy(memory, pids)


def make(hierarchy: Hierarchy, pid: int) -> Group | None:
    """A group with this process in it, or None where there is no hierarchy. Moving a process takes the kernel milliseconds."""
    if not hierarchy.usable:
        return None
    name = f"{PREFIX}{owner.mark()}-{next(_names)}"
    memory_at, pids_at = (parent / name if parent else None for parent in (hierarchy.memory, hierarchy.pids))
    group = Group(memory_at, pids_at, hierarchy.unified)
    try:
        group.begin(pid)
    except OSError:
        group.remove()
        return None
    return group


def _unified(own: Path) -> Hierarchy:
    """Version 2: usable when this group may delegate both controllers, which needs it to hold no process or to be the root."""
    control = own / "cgroup.subtree_control"
    with suppress(OSError):
        control.write_text("+memory +pids")
    if not {"memory", "pids"} <= set(_read(control).split()):
        return Hierarchy()
    place = _makeable(own)
    return Hierarchy(place, place, unified=True)


def _makeable(parent: Path) -> Path | None:
    trial = parent / f"{PREFIX}{owner.mark()}-trial"
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError:
        return None
    return parent


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
