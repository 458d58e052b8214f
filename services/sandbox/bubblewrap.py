"""The `bwrap` back end: namespaces of its own for each program, by bubblewrap.

A worker that is root starts bubblewrap as root, and the supervisor becomes a user of its own before any program exists; an
ordinary user gets a user namespace, in which no other may be made. Invariant: only what `_view` lists can be seen inside,
nothing but the scratch file system can be written, and there is no network unless the limits ask for it.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from services.sandbox import cgroups
from services.sandbox.backend import Launch
from services.sandbox.box import Box, BoxProgram
from services.sandbox.kit import Kit
from services.sandbox.order import Order
from services.sandbox.place import Shape, Stock, launch_in, trial
from services.sandbox.process import Start, open_box
from services.sandbox.runtime import NETWORK_FILES, SYSTEM_FILES, SYSTEM_TREES, Runtime
from services.sandbox.syscall_filter import compile_filter
from services.sandbox.users import users

KIT = "/run/rollstream"
SCRATCH = "/tmp"  # noqa: S108 - inside; one file system for temporary files and the working directory
WORKDIR = f"{SCRATCH}/work"
EMPTY = (SCRATCH, "/proc", "/dev", "/dev/shm")  # noqa: S108 - inside

SHARED_MEMORY_BYTES = 16 << 20
"""Size of /dev/shm: semaphores of multiprocessing live there."""

INSTALL = "install it (Debian, Ubuntu: apt-get install bubblewrap; Fedora: dnf install bubblewrap; or scripts/sandbox.sh)"


class Bubblewrap:
    """See the module. `as_root` tells how root is dropped: by the supervisor, or (False) before bubblewrap starts."""

    name = "bwrap"
    unsafe = False

    def __init__(self, runtime: Runtime, shape: Shape, spare: int = 0, *, as_root: bool | None = None) -> None:
        self._runtime = runtime
        self._users = users()
        self._as_root = self._users.root if as_root is None else as_root
        self._groups = cgroups.find()
        program = compile_filter()
        self._kit = Kit({"filter": program})
        self._filter = self._kit.path("filter") if program else None
        self._stock = Stock(self._open, shape, spare)
        self._program = shutil.which("bwrap") or "bwrap"

    async def probe(self) -> str | None:
        if shutil.which("bwrap") is None:
            return f"bubblewrap is not on this machine: {INSTALL}"
        reason = await trial(self.launch)
        if reason and "amespace" in reason:
            return f"{reason} (this machine forbids user namespaces to ordinary users, or to containers: see docs/sandbox.md)"
        return reason

    async def launch(self, launch: Launch) -> BoxProgram:
        return await launch_in(self._stock, launch)

    async def close(self) -> None:
        try:
            await self._stock.close()
        finally:
            self._kit.remove()

    async def _open(self, shape: Shape) -> Box:
        fds = [os.open(self._filter, os.O_RDONLY)] if self._filter else []
        try:
            user = self._users.take()
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise
        environment = {**self._runtime.environment, "HOME": SCRATCH, "TMPDIR": SCRATCH}
        return await open_box(
            Start(
                self._command(shape, user, fds),
                Order(environment),
                pass_fds=fds,
                groups=self._groups,
                supervisor=_first_child,
                gone=lambda _: self._users.give_back(user),
            )
        )

    def _command(self, shape: Shape, user: int, fds: Sequence[int]) -> list[str]:
        namespaces = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
        namespaces += [] if shape.network else ["--unshare-net"]
        before, settle = [], str(user)
        if self._as_root:
            rights = ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        else:
            rights = ["--unshare-user", "--disable-userns", "--cap-drop", "ALL"]
            before, settle = (drop_to(user) if user >= 0 else []), "-1"
        seccomp = [word for fd in fds for word in ("--seccomp", str(fd))]
        inside = [self._runtime.python, f"{KIT}/supervisor.pyc", workdir(self._runtime.trees), settle, "exclusive"]
        lifetime = ["--die-with-parent", "--as-pid-1", "--hostname", "sandbox"]
        return [*before, self._program, *namespaces, *rights, *lifetime, *seccomp, *self._view(shape), "--", *inside]

    def _view(self, shape: Shape) -> list[str]:
        trees = [*SYSTEM_FILES, *(NETWORK_FILES if shape.network else ()), *self._runtime.trees]
        # What is mounted empty comes first: a checkout or a Python may lie below it, and would be hidden.
        words = [word for tree in SYSTEM_TREES for word in _system(tree)]
        words += ["--proc", "/proc", "--dev", "/dev"]
        words += ["--size", str(SHARED_MEMORY_BYTES), "--perms", "1777", "--tmpfs", "/dev/shm"]  # noqa: S108
        words += ["--size", str(max(shape.scratch, 1 << 16)), "--perms", "1777", "--tmpfs", SCRATCH]
        words += [word for parent in _parents([*trees, "/etc/passwd", KIT]) for word in _open_directory(parent)]
        words += [word for tree in trees for word in ("--ro-bind-try", tree, tree)]
        words += ["--ro-bind", str(self._kit.directory), KIT, "--symlink", f"{KIT}/passwd", "/etc/passwd"]
        return [*words, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]


def drop_to(user: int, keep: str = "") -> list[str]:
    """Words that start the rest as another user, with no right but (perhaps) `keep`."""
    sets = f"-all,+{keep}" if keep else "-all"
    rights = ["--inh-caps", sets, "--ambient-caps", sets, "--bounding-set", sets]
    return ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups", *rights, "--"]


def workdir(trees: Sequence[str]) -> str:
    """The programs' directory, by another name where a tree of the runtime lies on the way: it has to be theirs."""
    taken = {str(place) for tree in trees for place in (Path(tree), *Path(tree).parents)}
    return next(name for name in (WORKDIR + "_" * n for n in itertools.count()) if name not in taken)


def _system(tree: str) -> list[str]:
    path = Path(tree)
    if path.is_symlink():
        return ["--symlink", str(path.readlink()), tree]
    return ["--ro-bind", tree, tree] if path.is_dir() else []


def _parents(paths: Sequence[str]) -> list[str]:
    """The directories above, outermost first."""
    above = {str(parent) for path in paths for parent in Path(path).parents if str(parent) != "/"}
    return sorted(above - {*SYSTEM_TREES, *EMPTY, *paths})


def _open_directory(path: str) -> list[str]:
    """Bubblewrap would make it for its own user alone, and the program has another."""
    return ["--perms", "0755", "--dir", path]


def _first_child(pid: int) -> int:
    """The process that bubblewrap started, by its number out here."""
    with suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    return pid
