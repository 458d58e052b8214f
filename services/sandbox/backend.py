"""What a sandbox back end is: something that starts a program in isolation and can end all of it.

Owns the interface that one-shot runs and live sessions build on. Invariant: a program that was launched ends with
`Program.close`, and after it nothing that the program started is alive and nothing that it wrote is on the machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from environments.context import Limits
from schemas.errors import InfrastructureError

CHANNEL_FD = 3
"""The descriptor that `Launch.channel` opens in the program: the first one after the three that every program has."""


class TooSlow(InfrastructureError):
    """An isolated place did not come up, or its first program did not end, in time: a loaded machine or a broken one."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A program to start.

    `argv[0]` may be `environments.context.PYTHON`. `files` (relative path to content) are in the working directory before it
    starts. `stdin` is all that it reads there. `channel` opens descriptor `CHANNEL_FD` in it, a stream socket (read and
    write) whose other end is `Program.send` and `Program.receive`; children of the program do not inherit it by accident
    (Python marks it close-on-exec), and its stdout and stderr are not part of it. `limits.wall_s` is the caller's to keep.
    """

    argv: Sequence[str]
    files: Mapping[str, bytes] = field(default_factory=dict)
    stdin: bytes = b""
    limits: Limits = Limits()
    channel: bool = False


@dataclass(frozen=True, slots=True)
class Exit:
    """How a program ended. `returncode` is negative for a signal; `limit` names the limit that ended it, if one did.

    `stdout` and `stderr` are at most `Limits.output` bytes each (head and tail, with a line between that says what is left
    out). `cpu_s` is the processor time of the program and of the children it waited for.
    """

    returncode: int
    stdout: bytes = b""
    stderr: bytes = b""
    limit: str = ""
    cpu_s: float = 0.0


class Program(Protocol):
    """A program that runs in isolation. Every method raises `InfrastructureError` when the sandbox itself broke."""

    async def send(self, data: bytes) -> None:
        """Write to the program's channel; returns when the sandbox has taken it. Dropped when the program has ended."""
        ...

    async def receive(self) -> bytes:
        """The next bytes (1 or more) that the program wrote to its channel; `b""` once it has ended or closed it."""
        ...

    async def wait(self) -> Exit:
        """Its end; may be called more than once. Children that outlive it are dead by then."""
        ...

    async def stop(self) -> None:
        """Kill the program and all that it started. `wait` then answers -9, with the output so far."""
        ...

    async def collect(self, names: Sequence[str], limit: int) -> Mapping[str, bytes]:
        """Files (relative paths) that it left, once it has ended: regular ones, as far as `limit` bytes go for all together."""
        ...

    async def close(self) -> None:
        """Kill what is left of the isolated place and remove it with everything in it. Never raises; idempotent."""
        ...


class Launcher(Protocol):
    """Starts programs. Raises `InfrastructureError` when the isolated place could not be made."""

    async def launch(self, launch: Launch) -> Program: ...


class Backend(Launcher, Protocol):
    """One way of isolating. `unsafe`: it limits what a program uses and not what it reaches."""

    @property
    def name(self) -> str: ...

    @property
    def unsafe(self) -> bool: ...

    async def probe(self) -> str | None:
        """Why this machine cannot offer it, in words that say what to do; None when a program was run in it just now.

        Raises `TooSlow` when that could not be found out in time.
        """
        ...

    async def close(self) -> None:
        """End what it keeps for quicker starts."""
        ...
