"""The back ends without namespaces: `landlock` (Landlock, seccomp, limits) and `rlimits` (limits alone, unsafe).

A program shares the machine's process table and, when the worker is no root, the worker's user. Invariant: each program has a
scratch directory of its own that is removed with it, and its supervisor ends every process that came of it.
"""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from schemas.errors import InfrastructureError
from services.sandbox import cgroups
from services.sandbox.backend import Launch
from services.sandbox.box import Box, BoxProgram
from services.sandbox.bubblewrap import drop_to
from services.sandbox.confine import abi
from services.sandbox.kit import Kit, clear
from services.sandbox.order import Order
from services.sandbox.place import Shape, Stock, launch_in, trial
from services.sandbox.process import Start, open_box, sweep_below, sweep_user
from services.sandbox.runtime import SYSTEM_FILES, SYSTEM_TREES, Runtime
from services.sandbox.syscall_filter import Sharing, compile_filter
from services.sandbox.users import users

MIN_ABI = 3
"""Linux 6.2: before it, Landlock does not keep a program from cutting files short that its user may write."""

SIGNALS_ABI = 6
"""Linux 6.12: signals to processes outside are refused by Landlock, and need not be refused altogether by seccomp."""

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
READ_ANYWHERE = "dac_read_search"


class SharedMachine:
    """What both do alike."""

    name = ""
    unsafe = False

    def __init__(self, runtime: Runtime, shape: Shape, spare: int = 0) -> None:
        self._runtime = runtime
        self._users = users()
        self._groups = cgroups.find()
        self._kit = Kit()
        self._count = 0
        self._stock = Stock(self._open, shape, spare)

    async def probe(self) -> str | None:
        return self._missing() or await trial(self.launch)

    def _missing(self) -> str | None:
        if self._users.root and shutil.which("setpriv") is None:
            return "setpriv is not on this machine (package util-linux), and programs are not started as root"
        return None

    async def launch(self, launch: Launch) -> BoxProgram:
        return await launch_in(self._stock, launch)

    async def close(self) -> None:
        try:
            await self._stock.close()
        finally:
            self._kit.remove()

    def _confinement(self, shape: Shape, scratch: Path) -> dict[str, Any] | None:
        raise NotImplementedError

    async def _open(self, shape: Shape) -> Box:
        user = self._users.take()
        self._count += 1
        scratch = self._kit.directory / f"scratch-{self._count}"
        try:
            start = self._start(shape, user, scratch)
        except OSError as error:
            self._gone(user, scratch, True)
            raise InfrastructureError(f"the sandbox could not make {error.filename or scratch}: {error.strerror}") from error
        return await open_box(start)

    def _start(self, shape: Shape, user: int, scratch: Path) -> Start:
        (scratch / "work").mkdir(parents=True)
        if user >= 0:
            for directory in (scratch, scratch / "work"):
                os.chown(directory, user, user)
        scratch.chmod(0o700)
        exclusive = "exclusive" if self._users.exclusive else "shared"
        inside = [self._runtime.python, self._kit.path("supervisor.pyc"), str(scratch / "work"), "-1", exclusive]
        keep = "" if self._readable() else READ_ANYWHERE
        environment = {**self._runtime.environment, "HOME": str(scratch), "TMPDIR": str(scratch)}
        return Start(
            [*(drop_to(user, keep) if user >= 0 else ()), *inside],
            Order(environment, self._confinement(shape, scratch), scratch_counted=True),
            groups=self._groups,
            sweep=sweep_below,
            gone=partial(self._gone, user, scratch),
        )

    def _gone(self, user: int, scratch: Path, in_order: bool) -> None:
        try:
            if not in_order and user >= 0 and self._users.exclusive:
                sweep_user(user)
            clear(scratch)
        finally:
            self._users.give_back(user)

    def _readable(self) -> bool:
        """Whether everyone may reach the runtime; root's own Python under /root is not so."""
        places = [*self._runtime.trees, self._runtime.python]
        return all(parent.stat().st_mode & 0o001 for place in places for parent in Path(place).parents)


class Landlock(SharedMachine):
    """Files by Landlock, system calls by seccomp, the rest by limits."""

    name = "landlock"

    def _missing(self) -> str | None:
        version = abi()
        if version < MIN_ABI:
            has = f"version {version}" if version else "none, or it is not switched on (boot parameter lsm=landlock,…)"
            return f"this kernel's Landlock is too old: version {MIN_ABI} (Linux 6.2) is needed, there is {has}"
        if not compile_filter():
            return "this processor's system calls are not known to the seccomp filter (x86_64 and aarch64 are)"
        return super()._missing()

    def _confinement(self, shape: Shape, scratch: Path) -> dict[str, Any]:
        sharing = Sharing(
            system=True,
            user=not self._users.exclusive,
            signals=not self._users.exclusive and abi() < SIGNALS_ABI,
            network=shape.network,
        )
        network = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl") if shape.network else ()
        read = [*SYSTEM_TREES, *SYSTEM_FILES, *network, *self._runtime.trees]
        return {"read": read, "write": [str(scratch), *DEVICES], "filter": compile_filter(sharing)}


class Rlimits(SharedMachine):
    """No isolation at all: files, network and other processes of the user are within reach. For trusted code only."""

    name = "rlimits"
    unsafe = True

    def _confinement(self, shape: Shape, scratch: Path) -> None:
        del shape, scratch
