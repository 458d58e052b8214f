"""The `container` back end: one container for each program, over the HTTP API of Docker or Podman.

The supervisor is the container's first process, handed over as source, so any image with Python 3.9 or newer will do.
Invariant: a container is made with all of its limits and without network, and it is removed by force when its box ends.
Source of the requests: Docker Engine API v1.41 (Podman answers the same).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp

from environments.context import Limits
from schemas.errors import InfrastructureError
from services.sandbox.backend import Launch
from services.sandbox.box import Box, BoxProgram, finished
from services.sandbox.cgroups import SUPERVISOR_BYTES
from services.sandbox.order import Order
from services.sandbox.place import trial
from services.sandbox.users import NOBODY

API = "/v1.41"
SCRATCH = "/tmp"  # noqa: S108 - inside
WORKDIR = f"{SCRATCH}/work"
CALL_S = 60.0

STREAM_HEADER = struct.Struct("!BxxxI")
"""How the engine marks pieces of the two output streams: 1 is stdout, 2 is stderr."""

STDOUT = 1
LAST_WORDS = 2_000

ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONNOUSERSITE": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "HOME": SCRATCH,
    "TMPDIR": SCRATCH,
}


class Container:
    """See the module. `engine` is the path of the API's socket; empty: `DOCKER_HOST`, then the usual places."""

    name = "container"
    unsafe = False

    def __init__(self, image: str, engine: str = "") -> None:
        self._image = image
        self._socket = engine or _usual_socket()
        self._session: aiohttp.ClientSession | None = None

    async def probe(self) -> str | None:
        if not self._image:
            return "no image is named (setting sandbox.image: one with Python and what the programs import)"
        if not self._socket:
            return "there is no Docker or Podman on this machine (no API socket; setting sandbox.engine names one)"
        return await trial(self.launch)

    async def launch(self, launch: Launch) -> BoxProgram:
        box = await self._open(launch.limits)
        try:
            return await box.launch(launch)
        except BaseException:
            await box.close()
            raise

    async def close(self) -> None:
        if self._session:
            await self._session.close()

    async def _open(self, limits: Limits) -> Box:
        name = f"rollstream-{secrets.token_hex(8)}"
        life = ContainerLife(self, name)
        try:
            await self.call("POST", f"/containers/create?{urlencode({'name': name})}", _created(self._image, limits))
            reader, writer = await attach(self._socket, name)
        except BaseException:
            await finished(asyncio.create_task(life.end()))
            raise
        demultiplexed = Demultiplexed(reader, life.said)
        box = Box(life, demultiplexed, writer, Order(ENVIRONMENT))
        try:
            await self.call("POST", f"/containers/{name}/start")
        except BaseException:
            await box.close()
            raise
        return await box.ready()

    async def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """One request; raises `InfrastructureError` with the engine's words."""
        if self._session is None:
            connector = aiohttp.UnixConnector(self._socket)
            self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(CALL_S))
        try:
            async with self._session.request(method, f"http://engine{API}{path}", json=body) as response:
                text = await response.text()
                if response.status >= HTTPStatus.BAD_REQUEST:
                    raise InfrastructureError(f"the container engine refused {method} {path}: {text[:500]}")
                return await response.json(content_type=None) if text else None
        except (aiohttp.ClientError, TimeoutError) as error:
            raise InfrastructureError(f"the container engine at {self._socket} did not answer: {error}") from error


@dataclass(slots=True)
class ContainerLife:
    """See `services.sandbox.box.Life`."""

    engine: Container
    name: str
    said: bytearray = field(default_factory=bytearray)
    alive: bool = True

    def admit(self, launch: Launch) -> None:
        """Nothing: the container was made with the limits."""

    async def out_of_memory(self) -> bool:
        with suppress(InfrastructureError):
            about = await self.engine.call("GET", f"/containers/{self.name}/json")
            return bool(about.get("State", {}).get("OOMKilled"))
        return False

    async def last_words(self) -> str:
        return bytes(self.said[-LAST_WORDS:]).decode(errors="replace").strip()

    async def end(self) -> None:
        self.alive = False
        with suppress(InfrastructureError):
            await self.engine.call("DELETE", f"/containers/{self.name}?force=1&v=1")


@dataclass(slots=True)
class Demultiplexed:
    """The container's stdout out of the engine's stream of pieces; its stderr goes to `said`, the last of it."""

    source: asyncio.StreamReader
    said: bytearray
    _ready: bytearray = field(default_factory=bytearray)

    async def readexactly(self, size: int) -> bytes:
        """Raises `IncompleteReadError` when the container is gone."""
        while len(self._ready) < size:
            kind, length = STREAM_HEADER.unpack(await self.source.readexactly(STREAM_HEADER.size))
            data = await self.source.readexactly(length)
            if kind == STDOUT:
                self._ready += data
            else:
                self.said += data
                del self.said[:-LAST_WORDS]
        found = bytes(self._ready[:size])
        del self._ready[:size]
        return found


async def attach(path: str, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The container's three streams on one connection, which stops being HTTP after the reply's head."""
    query = urlencode({"stream": 1, "stdin": 1, "stdout": 1, "stderr": 1})
    head = (
        f"POST {API}/containers/{name}/attach?{query} HTTP/1.1\r\nHost: engine\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
    )
    try:
        async with asyncio.timeout(CALL_S):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(head.encode())
            reply = await reader.readuntil(b"\r\n\r\n")
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise InfrastructureError(f"the container engine at {path} did not attach: {error}") from error
    status = reply.split(b" ", 2)[1:2]
    if status not in ([b"101"], [b"200"]):
        writer.close()
        raise InfrastructureError(f"the container engine refused to attach: {reply[:200].decode(errors='replace')}")
    return reader, writer


def _created(image: str, limits: Limits) -> dict[str, Any]:
    source = (Path(__file__).parent / "supervisor.py").read_text()
    memory = limits.memory + SUPERVISOR_BYTES
    return {
        "Image": image,
        "Entrypoint": ["python3", "-c", source, WORKDIR, "-1", "exclusive"],
        "Cmd": [],
        "Env": [f"{name}={value}" for name, value in ENVIRONMENT.items()],
        "User": f"{NOBODY}:{NOBODY}",
        "WorkingDir": "/",
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "OpenStdin": True,
        "StdinOnce": True,
        "Tty": False,
        "HostConfig": {
            "NetworkMode": "bridge" if limits.network else "none",
            "Memory": memory,
            "MemorySwap": memory,
            "PidsLimit": limits.processes + 1,
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "Tmpfs": {SCRATCH: f"size={limits.scratch},mode=1777,exec"},
            "ShmSize": 16 << 20,
        },
    }


def _usual_socket() -> str:
    named = os.environ.get("DOCKER_HOST", "")
    if named.startswith("unix://"):
        return named.removeprefix("unix://")
    runtime = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
    places = ("/var/run/docker.sock", f"{runtime}/docker.sock", "/run/podman/podman.sock", f"{runtime}/podman/podman.sock")
    return next((place for place in places if Path(place).is_socket()), "")
