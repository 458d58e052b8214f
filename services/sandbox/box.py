"""One isolated place, seen from outside: its supervisor, and the one program it serves.

Owns the frames between the worker and the supervisor. Invariant: whatever comes out of a box is bounded and is data; the
box ends with its control line, so a worker that dies leaves none behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from schemas.errors import InfrastructureError
from services.sandbox.backend import Exit, Launch, TooSlow
from services.sandbox.order import Order
from services.sandbox.supervisor import ENDED, HEADER

log = structlog.get_logger()

START_S = 20.0
"""A box starts in 20 ms; on a machine that is this much slower something is wrong."""

STOP_S = 2.0
"""How long a supervisor may take to end a program before the box is killed from outside."""

MAX_FRAME = 256 << 20
"""More than any output or file limit; a longer frame is nonsense from a box that was taken over."""

QUEUED_FRAMES = 64

MARSHAL_VERSION = 2
"""The last one that every Python 3 reads: a container may have another Python than we."""


class Life(Protocol):
    """What keeps a box alive: a process here, or a container of an engine."""

    @property
    def alive(self) -> bool: ...

    def admit(self, launch: Launch) -> None:
        """Limit the whole tree, before the program starts."""
        ...

    async def out_of_memory(self) -> bool:
        """Whether the tree lost a process for its memory."""
        ...

    async def last_words(self) -> str:
        """What a box that is gone said on stderr."""
        ...

    async def end(self) -> None:
        """End it with everything in it, and wait for that."""
        ...


async def finished(task: asyncio.Task[None]) -> None:
    """Wait for a task that gives things back: a cancelled caller is cancelled once it is done, not earlier.

    The wait is as bounded as the task.
    """
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if not task.done():
                cancelled = error
    if cancelled is not None:
        raise cancelled


class Reader(Protocol):
    """Where frames come from."""

    async def readexactly(self, size: int) -> bytes: ...


@dataclass(slots=True)
class Box:
    """A started box that waits for its program."""

    life: Life
    reader: Reader
    writer: asyncio.StreamWriter
    order: Order
    _closing: asyncio.Task[None] | None = None

    async def ready(self) -> Box:
        """Itself, once the supervisor has spoken; raises `InfrastructureError` with what was said when it does not.

        Closed when it raises, also by a cancellation.
        """
        try:
            return await self._ready()
        except BaseException:
            await self.close()
            raise

    async def _ready(self) -> Box:
        try:
            async with asyncio.timeout(START_S):
                kind, _ = await self.receive()
        except TimeoutError:
            kind = b""
            if self.life.alive:
                raise TooSlow(f"the sandbox did not start within {START_S:g} s: it said nothing") from None
        if kind != b"r":
            said = await self.life.last_words()
            raise InfrastructureError(f"the sandbox did not start: {said or 'it said nothing'}")
        return self

    async def send(self, kind: bytes, body: bytes = b"") -> None:
        """One frame; nothing happens when the box is gone, which the reader will say."""
        with contextlib.suppress(ConnectionError):
            self.writer.write(HEADER.pack(kind, len(body)))
            self.writer.write(body)
            await self.writer.drain()

    async def receive(self) -> tuple[bytes, bytes]:
        """The next frame; an empty kind when the box is gone."""
        try:
            kind, size = HEADER.unpack(await self.reader.readexactly(HEADER.size))
            if size > MAX_FRAME:
                return b"", b""
            return kind, await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return b"", b""

    async def launch(self, launch: Launch) -> BoxProgram:
        """Give it its program."""
        order = self.order.of(launch)
        self.life.admit(launch)
        program = BoxProgram(self)
        try:
            await self.send(b"L", marshal.dumps(order, MARSHAL_VERSION))
        except BaseException:
            await program.close()
            raise
        return program

    async def close(self) -> None:
        """End it and wait for that. Idempotent, never raises; a cancelled caller does not cancel it, and waits too."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await finished(self._closing)

    async def _close(self) -> None:
        try:
            self.writer.close()
            await self.life.end()
        except Exception as error:  # noqa: BLE001 - whoever closes can do nothing about it; the next worker cleans up
            log.warning("sandbox.not_ended", error=repr(error))


@dataclass(slots=True)
class BoxProgram:
    """The program in a box: `services.sandbox.backend.Program`."""

    box: Box
    _channel: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(QUEUED_FRAMES))
    _files: asyncio.Queue[tuple[bytes, bytes]] = field(default_factory=lambda: asyncio.Queue(QUEUED_FRAMES))
    _ended: asyncio.Future[Exit] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    _quiet: bool = False
    _stopped: bool = False
    _reading: asyncio.Task[None] = field(init=False)

    def __post_init__(self) -> None:
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while True:
            kind, body = await self.box.receive()
            if kind == b"c":
                await self._channel.put(body)
            elif kind == b"e":
                self._end(await self._exit_of(body))
            elif kind in {b"f", b"d"}:
                await self._files.put((kind, body))
            else:
                await self._gone(kind, body)
                return

    def _end(self, result: Exit | InfrastructureError) -> None:
        if self._ended.done():
            return
        if isinstance(result, Exit):
            self._ended.set_result(result)
        else:
            self._ended.set_exception(result)
            self._ended.exception()  # said to whoever waits; nobody may

    async def _exit_of(self, body: bytes) -> Exit:
        status, cpu, out, err, limit = ENDED.unpack_from(body)
        stdout = body[ENDED.size : ENDED.size + out]
        stderr = body[ENDED.size + out : ENDED.size + out + err]
        name = limit.rstrip(b"\0").decode("ascii", "replace")
        if not name and status < 0 and await self.box.life.out_of_memory():
            name = "memory"
        return Exit(status, stdout, stderr, name, cpu)

    async def _gone(self, kind: bytes, body: bytes) -> None:
        if await self.box.life.out_of_memory():
            self._end(Exit(-9, limit="memory"))
        elif self._stopped:
            self._end(Exit(-9))
        elif kind == b"x":
            self._end(InfrastructureError(f"the sandbox could not prepare the program: {body.decode(errors='replace')}"))
        else:
            said = "" if self._ended.done() else await self.box.life.last_words()
            self._end(InfrastructureError(f"the sandbox broke: {said or 'its supervisor is gone'}"))
        await self._files.put((b"", b""))
        await self._channel.put(b"")

    async def send(self, data: bytes) -> None:
        """See `Program.send`."""
        await self.box.send(b"C", data)

    async def receive(self) -> bytes:
        """See `Program.receive`."""
        data = b"" if self._quiet else await self._channel.get()
        self._quiet = not data
        return data

    async def wait(self) -> Exit:
        """See `Program.wait`."""
        return await asyncio.shield(self._ended)

    async def stop(self) -> None:
        """See `Program.stop`."""
        self._stopped = True
        await self.box.send(b"K")
        try:
            async with asyncio.timeout(STOP_S):
                await asyncio.shield(self._ended)
        except TimeoutError:
            await self.box.close()

    async def collect(self, names: Sequence[str], limit: int) -> Mapping[str, bytes]:
        """See `Program.collect`."""
        await self.wait()
        await self.box.send(b"F", marshal.dumps({"names": list(names), "limit": limit}, MARSHAL_VERSION))
        found: dict[str, bytes] = {}
        while (frame := await self._files.get())[0] == b"f":
            (place,) = struct.unpack_from("!I", frame[1])
            limit -= len(frame[1]) - 4
            if place < len(names) and limit >= 0:
                found[names[place]] = frame[1][4:]
        if not frame[0]:
            raise InfrastructureError("the sandbox broke before it had handed over a program's files")
        return found

    async def close(self) -> None:
        """See `Program.close`."""
        self._reading.cancel()
        await self.box.close()
        self._end(Exit(-9))
