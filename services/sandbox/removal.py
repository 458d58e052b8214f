"""Removing a tree that a program made, however it made it.

Invariant: the work grows with the number of entries alone: no recursion, two descriptors at a time, no path longer than a
name, so neither depth nor long names keep a tree from being removed. Nothing outside the tree is touched: links are removed,
not followed.
"""

from __future__ import annotations

import os
import secrets
import time
from contextlib import suppress
from pathlib import Path

LONGEST_S = 60.0
"""A tree within the limits of a program (20,000 entries) takes a second; what is left after this is the next worker's."""

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: Path, longest_s: float = LONGEST_S) -> OSError | None:
    """Remove the directory; never raises. What kept it from being removed wholly, or None when it is gone."""
    try:
        at = _opened(str(path), None)
        try:
            _empty(at, time.monotonic() + longest_s)
        finally:
            os.close(at)
        path.rmdir()
    except FileNotFoundError:
        return None
    except OSError as error:
        return error
    return None


def _empty(at: int, deadline: float) -> None:
    """Remove what is in a directory: each one below is moved to here, under a new name, when it is met."""
    new, count = secrets.token_hex(8), 0
    waiting = _without_files(at)
    while waiting:
        name = waiting.pop()
        below = _opened(name, at)
        try:
            for child in _without_files(below):
                count += 1
                _move(child, below, f"{new}-{count}", at)
                waiting.append(f"{new}-{count}")
        finally:
            os.close(below)
        os.rmdir(name, dir_fd=at)
        if time.monotonic() > deadline:
            raise TimeoutError("it has too many entries")


def _without_files(at: int) -> list[str]:
    """Remove all but the directories in one; their names."""
    with os.scandir(at) as entries:
        found = list(entries)
    directories = [entry.name for entry in found if entry.is_dir(follow_symlinks=False)]
    for entry in found:
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.name, dir_fd=at)
    return directories


def _move(name: str, below: int, new: str, at: int) -> None:
    try:
        os.rename(name, new, src_dir_fd=below, dst_dir_fd=at)
    except PermissionError:  # an ordinary user may move what it may write in
        _allow(name, below)
        os.rename(name, new, src_dir_fd=below, dst_dir_fd=at)


def _opened(name: str, at: int | None) -> int:
    """A descriptor of a directory in which its owner may do everything."""
    try:
        fd = os.open(name, _OPEN, dir_fd=at)
    except PermissionError:
        _allow(name, at)
        fd = os.open(name, _OPEN, dir_fd=at)
    with suppress(PermissionError):  # another's; then root's rights are enough, or nothing is
        os.fchmod(fd, 0o700)
    return fd


def _allow(name: str, at: int | None) -> None:
    fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    try:
        os.chmod(f"/proc/self/fd/{fd}", 0o700)  # noqa: PTH101 - a mode cannot be changed through O_PATH itself
    finally:
        os.close(fd)
