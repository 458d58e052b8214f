"""Landlock and seccomp on the calling process, for good. Runs inside, beside the supervisor, and imports no package of ours.

Invariant: either all of it holds when `confine` returns, or it raises and the program is not started.
Source of the structures and numbers: linux/landlock.h, linux/seccomp.h, linux/prctl.h.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from typing import Any

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same number on every architecture
VERSION_FLAG, PATH_BENEATH = 1, 1
PR_SET_SECCOMP, MODE_FILTER, PR_SET_NO_NEW_PRIVS = 22, 2, 38

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE, IOCTL = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
READ = EXECUTE | READ_FILE | READ_DIR
ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL

NET_ABI, SCOPES_ABI = 4, 6
"""The versions that know about TCP and about scopes."""

NET_TCP = 0b11
SCOPES = 0b11
"""Abstract Unix sockets and signals to processes outside."""

_libc = ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """The kernel's Landlock version; 0 when it has none or it is not switched on."""
    return max(0, int(_libc.syscall(CREATE_RULESET, None, 0, VERSION_FLAG)))


def confine(spec: dict[str, Any]) -> None:
    """`read` and `write`: trees; `network`: whether TCP stays; `filter`: a compiled seccomp program, or empty."""
    _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    ruleset = _ruleset(abi(), network=spec["network"])
    handled = _handled(abi())
    for path in spec["read"]:
        _allow(ruleset, path, READ & handled)
    for path in spec["write"]:
        _allow(ruleset, path, handled)
    _check(_libc.syscall(RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)
    if spec["filter"]:
        _filter(spec["filter"])


def _handled(version: int) -> int:
    bits = {0: 0, 1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)
    return (1 << bits) - 1


def _ruleset(version: int, *, network: bool) -> int:
    attributes = [_handled(version)]
    if version >= NET_ABI:
        attributes.append(0 if network else NET_TCP)
    if version >= SCOPES_ABI:
        attributes.append(SCOPES)
    packed = struct.pack(f"{len(attributes)}Q", *attributes)
    return _check(_libc.syscall(CREATE_RULESET, packed, len(packed), 0), "landlock_create_ruleset")


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(os.fstat(fd).st_mode):
        access &= ON_FILES
    rule = struct.pack("=Qi", access, fd)
    _check(_libc.syscall(ADD_RULE, ruleset, PATH_BENEATH, rule, 0), f"landlock_add_rule {path}")
    os.close(fd)


def _filter(program: bytes) -> None:
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    _check(_libc.prctl(PR_SET_SECCOMP, MODE_FILTER, header, 0, 0), "seccomp")


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
