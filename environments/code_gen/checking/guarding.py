"""What processes of the checker may do: the program's guard, its raised limits, and the checker's own privacy.

The guard is the reference's, so that programs fail where they fail there. It is no boundary: the sandbox is.
"""

from __future__ import annotations

import importlib
import os
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38

_CAPABILITIES = struct.pack("Ii", 0x20080522, 0)  # version 3, this process
_READ_ANYWHERE = 1 << 2  # CAP_DAC_READ_SEARCH

RAISED = 4 << 30
"""Soft limits of data and stack are raised to this where they are lower (deep recursion needs stack)."""

RECURSION, DIGITS = 50_000, 50_000
"""Python's recursion limit, and the digits that conversions between int and text may have."""

_OS = """
chdir chmod chown chroot fchdir fchmod fchown fork forkpty getcwd kill killpg lchflags lchmod lchown putenv
remove removedirs rename renames replace rmdir setuid system truncate unlink
"""
_COSTLY = {
    "shutil": (("shutil", "tempfile"), ("rmtree", "move", "chown")),
    "subprocess": (("subprocess", "popen"), ("Popen",)),
}
"""Module: words of programs that lead to it, and what is cleared in it."""

_LOADED = ("numpy", "multiprocessing")
"""Modules that are loaded in the reference's checker before its guard and cannot be imported after it."""

_BLOCKED = ("ipdb", "joblib", "resource", "psutil", "tkinter")


def set_private(*, private: bool) -> None:
    """Forbid (or allow) other processes of this user to read this one's memory and descriptors; raises `OSError`."""
    _call("prctl", _PR_SET_DUMPABLE, int(not private), 0, 0, 0)


def drop_privileges() -> None:
    """Give up all capabilities, also those that starting another program would give; raises `OSError`.

    With root's, in a sandbox that runs as root, the checker's privacy would not hold. One is kept where Python cannot be
    read without it (a worker that is root, its Python below /root): to read any file that the sandbox shows. It opens no
    process's memory or descriptors, which is a matter of tracing.
    """
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    try:
        _have(permitted=_READ_ANYWHERE)
    except OSError:  # it has not got that one
        _have()
        return
    if _python_is_readable():
        _have()
    else:
        _have(effective=_READ_ANYWHERE, permitted=_READ_ANYWHERE)


def _have(*, effective: int = 0, permitted: int = 0) -> None:
    """Set the capabilities (bits); programs started from here get the permitted ones, if they were given to us so."""
    _call("capset", _CAPABILITIES, struct.pack("6I", effective, permitted, permitted, 0, 0, 0))


def _python_is_readable() -> bool:
    try:
        with open(os.__file__, "rb"):  # noqa: PTH123 - pathlib costs a start milliseconds
            pass
        for place in sys.path:
            with suppress(FileNotFoundError, NotADirectoryError):
                os.stat(place)  # noqa: PTH116
    except PermissionError:
        return False
    return True


def _call(function: str, *arguments: Any) -> None:
    """Call a function of libc by the interpreter's own binding: importing ctypes takes longer than the calls."""
    import _ctypes

    binding: Any = _ctypes
    if binding.call_function(binding.dlsym(binding.dlopen(None, 0), function), arguments) != 0:
        raise OSError(f"{function}{arguments} was refused")


def load(source: str) -> None:
    """Import what the guard would keep from being imported, where the program names it."""
    for name in _LOADED:
        if name in source:
            with suppress(ImportError):
                importlib.import_module(name)


def raise_limits() -> None:
    """Raise the soft limits as far as the hard ones allow."""
    import resource

    for kind in (resource.RLIMIT_DATA, resource.RLIMIT_STACK):
        soft, hard = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY and soft < RAISED:
            resource.setrlimit(kind, (RAISED if hard == resource.RLIM_INFINITY else min(RAISED, hard), hard))


def disarm(source: str) -> None:
    """Take functions that could do harm out of their modules, as the reference does.

    Modules that cost milliseconds to import are left alone unless the program names something that leads to them.
    """
    import builtins

    _clear(os, _OS.split())
    _clear(builtins, ["quit", "help"])
    for module, (words, names) in _COSTLY.items():
        if any(word in source for word in words):
            _clear(importlib.import_module(module), names)
    for name in _BLOCKED:
        sys.modules[name] = None  # type: ignore[assignment]  # how an import is blocked


def _clear(module: Any, names: Iterable[str]) -> None:
    for name in names:
        setattr(module, name, None)
