"""One live session's process: a driver in the sandbox, and the calls it has answered.

Owns the frames between the worker and the host program (`session_host`). Invariant: `executed` says exactly which codes the
process has answered, in order; after anything else (a late answer, a wrong frame, an end) the process is closed and stays so.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from environments.context import PYTHON, Limits
from schemas.errors import InfrastructureError, RolloutTimeout, SessionEnded
from services.sandbox.backend import Launch, Launcher, Program
from services.sandbox.session_host import HEAD, MAX_FRAME

_HOST = (Path(__file__).parent / "session_host.py").read_bytes()

END_S = 10.0
"""How long an ended program may take to say how."""

_REASONS = {
    "memory": "its process used more memory than it may",
    "output": "its process wrote more output than it may",
    "cpu": "its process used more processor time than it may",
    "scratch": "its process wrote more files than it may",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a session is started from."""

    rollout: str
    driver: str
    limits: Limits


class Executed:
    """The codes that were executed, as a digest: a journal may be long, and is compared at every call."""

    def __init__(self, codes: Iterable[str] = ()) -> None:
        self._digest = hashlib.sha256()
        for code in codes:
            self.add(code)

    def add(self, code: str) -> None:
        data = code.encode("utf-8", "surrogatepass")
        self._digest.update(len(data).to_bytes(8, "big") + data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Executed) and self._digest.digest() == other._digest.digest()

    __hash__ = None  # type: ignore[assignment]  # it grows


@dataclass(slots=True)
class SessionProcess:
    """A running session. `used` is the loop's time of its last call."""

    plan: Plan
    program: Program
    used: float
    executed: Executed = field(default_factory=Executed)
    calls: int = 0
    closed: bool = False
    _data: bytearray = field(default_factory=bytearray)

    @classmethod
    async def start(cls, launcher: Launcher, plan: Plan) -> SessionProcess:
        """Start one; raises `InfrastructureError` when the sandbox cannot."""
        files = {"session.py": _HOST, "driver.py": plan.driver.encode("utf-8")}
        program = await launcher.launch(Launch([PYTHON, "session.py", plan.rollout], files, b"", plan.limits, channel=True))
        return cls(plan, program, asyncio.get_running_loop().time())

    async def call(self, code: str, timeout_s: float) -> Mapping[str, Any]:
        """The driver's reply to `code`.

        Raises `RolloutTimeout` after `timeout_s`, `SessionEnded` when the code ended the process, `InfrastructureError` when
        the sandbox broke; the session is over then.
        """
        self.calls += 1
        try:
            async with asyncio.timeout(timeout_s):
                await self.program.send(_frame({"number": self.calls, "code": code}))
                found = await self._answer()
        except TimeoutError as error:
            await self.close()
            raise RolloutTimeout(f"a call of a live session did not return within {timeout_s:g} s; it was ended") from error
        except BaseException:
            await self.close()
            raise
        self.executed.add(code)
        self.used = asyncio.get_running_loop().time()
        return found

    async def close(self) -> None:
        """End the process and everything that it started. Idempotent; not undone when the caller is cancelled."""
        self.closed = True
        await asyncio.shield(self.program.close())

    async def _answer(self) -> Mapping[str, Any]:
        try:
            frame = await self._receive()
        except ValueError as error:
            raise InfrastructureError(f"a session's host answered out of order: {error}") from error
        if frame is None:
            raise SessionEnded(f"the session ended: {await self._end()}")
        if "ended" in frame:
            raise SessionEnded(f"the session ended: {await self._end(str(frame['ended']))}")
        if frame.get("number") != self.calls or not isinstance(frame.get("reply"), Mapping):
            raise InfrastructureError("a session's host answered out of order")
        reply: Mapping[str, Any] = frame["reply"]
        return reply

    async def _end(self, said: str = "its process is gone") -> str:
        """Why the program ended; raises `InfrastructureError` when the sandbox broke."""
        try:
            async with asyncio.timeout(END_S):
                ended = await self.program.wait()
        except TimeoutError:
            return said
        return _REASONS.get(ended.limit, said)

    async def _receive(self) -> Mapping[str, Any] | None:
        """The next frame; None when the line is closed. Raises `ValueError` for what is no frame."""
        if not await self._filled(HEAD):
            return None
        head = bytes(self._data[:HEAD])
        if not head[:-1].isdigit() or int(head) > 2 * MAX_FRAME:
            raise ValueError(f"{head!r} is no frame's beginning")
        end = HEAD + int(head) + 1
        if not await self._filled(end):
            return None
        value = json.loads(self._data[HEAD:end])
        del self._data[:end]
        if not isinstance(value, Mapping):
            raise ValueError("a frame is an object")  # noqa: TRY004 - a wrong frame like any other
        return value

    async def _filled(self, size: int) -> bool:
        while len(self._data) < size:
            part = await self.program.receive()
            if not part:
                return False
            self._data += part
        return True


def _frame(value: Mapping[str, Any]) -> bytes:
    body = json.dumps(value).encode("ascii")
    return b"%010d %s\n" % (len(body), body)
