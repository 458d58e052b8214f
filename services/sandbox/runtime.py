"""The Python that sandboxed programs run in: this installation's, read-only.

Owns which trees of the machine have to be visible for it. Invariant: what is listed is the interpreter, its library and its
packages; the directories above them are never visible, whatever they hold.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

SYSTEM_TREES = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Programs and libraries of the machine, where compilers and shells are. Some are links into /usr."""

SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/alternatives")
"""What the dynamic linker and Debian's program links read. Without /etc/localtime the clock is in UTC everywhere."""

NETWORK_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl", "/etc/ca-certificates", "/etc/pki")
"""What name look-up and TLS read, for programs that may use the network."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """An interpreter and the trees it needs."""

    python: str
    trees: tuple[str, ...]

    @property
    def environment(self) -> dict[str, str]:
        """The whole environment of a program, less what depends on its directory.

        One thread for linear algebra: the limits of a program are not the machine's. A fixed hash seed: a repeated
        verification decides alike.
        """
        directory = str(Path(self.python).parent)
        return {
            "PATH": ":".join(dict.fromkeys([directory, "/usr/local/bin", "/usr/bin", "/bin"])),
            "LANG": "C.UTF-8",
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONNOUSERSITE": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
        }


def this_installation() -> Runtime:
    """The interpreter that runs now, with its environment's packages."""
    return Runtime(sys.executable, trees_of(sys.executable, sys.prefix, sys.base_prefix))


def trees_of(python: str, *prefixes: str) -> tuple[str, ...]:
    """The trees that an interpreter with these prefixes is found in, by every path that leads to it."""
    wanted = [*prefixes]
    wanted += [os.path.realpath(prefix) for prefix in prefixes]
    link = Path(python)
    while link.is_symlink():  # each hop names the installation by a path of its own, and all have to work inside
        link = Path(os.path.normpath(link.parent / link.readlink()))
        wanted.append(str(link.parent.parent))
    return tuple(tree for tree in dict.fromkeys(wanted) if tree != "/" and not _in_system(tree))


def _in_system(tree: str) -> bool:
    return any(tree == system or tree.startswith(f"{system}/") for system in SYSTEM_TREES)
