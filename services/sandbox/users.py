"""The user ids that sandboxed programs run as when the worker is root.

Invariant: no two isolated places of the machine have the same id at a time, so a limit on a user's processes is a limit on one
program's, and nothing of one program may be signalled by another.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from schemas.errors import InfrastructureError

FIRST = 600_000_000
"""Far above accounts and the usual ranges of subordinate ids."""

PER_WORKER = 360
"""Ids of one worker process: with the largest process id (2^22) the range ends at 2,109,949,440, below 2^31."""

NOBODY = 65_534


@cache
def users() -> Users:
    """The one set of ids of this process, whichever back ends use it."""
    return Users()


class Users:
    """Hands out user ids; -1 for "the worker's own", which an ordinary user has to share."""

    def __init__(self) -> None:
        self.root = os.geteuid() == 0
        self._first = FIRST + os.getpid() * PER_WORKER
        self._distinct = self.root and _mapped(self._first + PER_WORKER)
        self._free = list(range(self._first, self._first + PER_WORKER))[::-1]

    @property
    def exclusive(self) -> bool:
        """Whether each id belongs to one place alone."""
        return self._distinct

    def take(self) -> int:
        """An id for one place; raises `InfrastructureError` past `PER_WORKER` places at once."""
        if not self.root:
            return -1
        if not self._distinct:
            return NOBODY
        if not self._free:
            raise InfrastructureError(f"this worker has {PER_WORKER} isolated places already (lower sandbox.slots)")
        return self._free.pop()

    def give_back(self, user: int) -> None:
        """The place is gone, and every process with it."""
        if self._distinct and user >= 0:
            self._free.insert(0, user)  # the longest unused comes next


def _mapped(user: int) -> bool:
    """Whether this user namespace has that id (in a rootless container only some are)."""
    try:
        ranges = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    except OSError:
        return False
    return any(first <= user < first + count for first, _, count in ranges)
