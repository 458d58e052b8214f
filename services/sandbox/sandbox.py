"""One-shot runs of model-written code: `environments.context.Sandbox`.

Owns the bound on programs at once and the wall clock. Invariant: a slot is free again only when nothing of its program is left,
so no more than `slots` programs weigh on the machine however fast they are asked for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from environments.context import Limits, SandboxResult
from schemas.errors import InfrastructureError
from services.sandbox.backend import Exit, Launch, Program
from services.sandbox.choice import Chosen
from services.sandbox.options import Options
from services.sandbox.order import check_names

COLLECT_BYTES = 64 << 20
"""What may be read back from one program, all files together: it is held in memory."""

DEFAULTS = Options()

COLLECT_S = 30.0
GRACE_S = 10.0
"""How much later than its limit a stopped program has to have told its end."""


class SandboxService:
    """The sandbox of a worker. `launcher` starts programs in the same isolation, for live sessions."""

    def __init__(self, options: Options = DEFAULTS, chosen: Chosen | None = None) -> None:
        self.launcher = chosen or Chosen(options)
        self._slots = asyncio.Semaphore(options.concurrency)
        self._running = 0
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def programs(self) -> int:
        """Programs that are there, those going away included."""
        return self._running

    async def start(self) -> None:
        """Nothing yet: a worker that runs no program pays for none."""

    async def close(self) -> None:
        """Wait for what is going away, then end what was kept ready."""
        await self.settled()
        await self.launcher.close()

    async def settled(self) -> None:
        """Wait until nothing is left of the programs that have ended."""
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def run(
        self,
        argv: Sequence[str],
        *,
        files: Mapping[str, bytes] | None = None,
        stdin: bytes = b"",
        limits: Limits = Limits(),
        collect: Sequence[str] = (),
    ) -> SandboxResult:
        """See `Sandbox.run`. Raises `DataError` for a file name that leaves the scratch directory."""
        check_names(collect)
        await self._slots.acquire()
        self._running += 1
        program: Program | None = None
        try:
            backend = await self.launcher.backend()
            program = await backend.launch(Launch(argv, files or {}, stdin, limits))
            started = time.monotonic()
            ended = await _until(program, limits.wall_s)
            wall_s = time.monotonic() - started
            found = await _collected(program, collect, limits)
        finally:
            self._release(program)
        return SandboxResult(ended.returncode, ended.stdout, ended.stderr, ended.limit, found, wall_s, backend.unsafe)

    def _release(self, program: Program | None) -> None:
        """Free the slot once the program is gone; the result need not wait for that."""
        task = asyncio.create_task(self._gone(program))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _gone(self, program: Program | None) -> None:
        try:
            if program is not None:
                await program.close()
        finally:
            self._running -= 1
            self._slots.release()


async def _until(program: Program, wall_s: float) -> Exit:
    """Its end, by itself or by the wall clock."""
    try:
        async with asyncio.timeout(wall_s):
            return await program.wait()
    except TimeoutError:
        pass
    try:
        async with asyncio.timeout(GRACE_S):
            await program.stop()
            ended = await program.wait()
    except TimeoutError as error:
        raise InfrastructureError("the sandbox could not stop a program within 10 s") from error
    return Exit(ended.returncode, ended.stdout, ended.stderr, ended.limit or "wall", ended.cpu_s)


async def _collected(program: Program, names: Sequence[str], limits: Limits) -> Mapping[str, bytes]:
    if not names:
        return {}
    try:
        async with asyncio.timeout(COLLECT_S):
            return await program.collect(names, min(limits.scratch, COLLECT_BYTES))
    except TimeoutError as error:
        raise InfrastructureError("the sandbox did not hand over a program's files within 30 s") from error
