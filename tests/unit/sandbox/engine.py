"""A small container engine for tests: Docker's HTTP API over a Unix socket, with processes of this machine as containers.

What is real: the requests and the attached stream with its pieces. What is not: isolation; the supervisor runs as it is.
"""

import asyncio
import contextlib
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path


class Engine:
    """Serves create, attach, start, inspect and delete. `containers` keeps what was asked for, by name."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "engine.sock")
        self.folder = folder
        self.containers: dict[str, dict] = {}
        self.removed: list[str] = []
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self.lines: dict[str, tuple] = {}
        self.refuses = ""
        self.out_of_memory = False
        self._tasks: set[asyncio.Task] = set()

    async def __aenter__(self):
        self._server = await asyncio.start_unix_server(self._serve, self.path)
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for name in list(self.processes):
            await self.remove(name)
        for task in self._tasks:
            task.cancel()

    async def _serve(self, reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                method, target, _ = head.split(" ", 2)
                length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
                body = await reader.readexactly(int(length[1])) if length else b""
                if "/attach?" in target:
                    self.lines[target.split("/")[3]] = (reader, writer)
                    writer.write(b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n")
                    return
                status, answer = await self._answer(method, target, json.loads(body) if body else None)
                text = json.dumps(answer).encode() if answer is not None else b""
                writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)

    async def _answer(self, method, target, body):
        path = target.split("?")[0].removeprefix("/v1.41/containers/")
        if self.refuses and self.refuses in path:
            return 500, {"message": "no such image: nowhere"}
        if path == "create":
            name = target.split("name=")[1]
            self.containers[name] = body
            return 201, {"Id": name}
        name, _, verb = path.partition("/")
        if verb == "start":
            await self._start(name)
            return 204, None
        if verb == "json":
            return 200, {"State": {"OOMKilled": self.out_of_memory}}
        await self.remove(name)
        return 204, None

    async def _start(self, name):
        asked = self.containers[name]
        entry = [sys.executable, *asked["Entrypoint"][1:]]
        entry[3] = tempfile.mkdtemp(dir=self.folder)
        entry[5] = "shared"
        environment = dict(item.split("=", 1) for item in asked["Env"])
        pipe = subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*entry, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)
        self.processes[name] = process
        reader, writer = self.lines[name]
        for work in (self._in(reader, process), self._out(writer, 1, process.stdout), self._out(writer, 2, process.stderr)):
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _in(self, reader, process):
        while data := await reader.read(1 << 16):
            process.stdin.write(data)
            await process.stdin.drain()
        process.stdin.close()

    async def _out(self, writer, kind, stream):
        while data := await stream.read(1 << 14):
            half = len(data) // 2  # pieces end anywhere
            for part in (data[:half], data[half:]):
                writer.write(struct.pack("!BxxxI", kind, len(part)) + part)
            await writer.drain()
        if kind == 1:
            writer.close()

    async def remove(self, name):
        self.removed.append(name)
        process = self.processes.pop(name, None)
        if process and process.returncode is None:
            process.stdin.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 2)
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, 9)
            await process.wait()
