"""Programs of the project as real processes, for tests that kill them.

`with Crew(folder) as crew:` starts them (`crew.worker("agent")`, `crew.run(...)`, `crew.model(...)`) and, however the test
ends, leaves none behind: each has a process group of its own that is killed on the way out, and on Linux the kernel kills
it when the test process dies first.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]
PROGRAM = "from rollstream.cli import main; main()"
START_TIMEOUT_S = 40.0  # two seconds alone; a dozen at once on two cores take ten times that
_POLL_S = 0.05

_TIED = """
import ctypes, os, resource, signal, sys
parent, limit, *line = sys.argv[1:]
if sys.platform.startswith("linux"):
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() != int(parent):
    sys.exit("whoever wanted this process is gone")
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
os.execv(line[0], line)
"""


class Process:
    """One started program, its log, and the moment it was started (`time.time()`)."""

    def __init__(self, name: str, popen: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.popen = popen
        self.log = log
        self.started = time.time()
        self.was_ready = False
        self.paused = False

    def __repr__(self) -> str:
        return f"{self.name}({self.popen.pid}, {'runs' if self.alive else self.popen.returncode})"

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    @property
    def code(self) -> int | None:
        """The exit code, None while it runs."""
        return self.popen.poll()

    def signal(self, number: signal.Signals) -> None:
        """Signal the whole process group; nothing happens when it has ended."""
        if self.alive:  # not reaped, so the number is still ours
            os.killpg(self.popen.pid, number)

    def kill(self) -> float:
        """End it at once; returns the moment after which it certainly did nothing more (`time.time()`)."""
        self.signal(signal.SIGKILL)
        self.popen.wait(20)
        return time.time()

    def pause(self) -> None:
        self.paused = True
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)
        self.paused = False

    async def end(self, timeout_s: float = 40) -> int:
        """The exit code, once it has ended by itself."""
        await self.until(lambda: not self.alive, "it has ended", timeout_s)
        return self.popen.returncode

    async def terminate(self, timeout_s: float = 40) -> int:
        """SIGTERM, then wait for the exit code."""
        self.signal(signal.SIGTERM)
        return await self.end(timeout_s)

    async def ready(self, timeout_s: float = START_TIMEOUT_S) -> Self:
        """Wait until its health port says that partitions are assigned and open."""
        end = time.monotonic() + timeout_s
        while not await asyncio.to_thread(self.answers_ready):
            assert self.alive, f"{self!r} ended before it was ready:\n{self.tail()}"
            assert time.monotonic() < end, f"{self!r} not ready within {timeout_s:g} s:\n{self.tail()}"
            await asyncio.sleep(_POLL_S)
        return self

    def answers_ready(self) -> bool:
        """Whether the health port answers 200 to /ready."""
        url = next((e["url"] for e in self.events() if e.get("event") == "health"), None)
        if url is None:
            return False
        try:
            with urllib.request.urlopen(f"{url}/ready", timeout=2) as reply:
                self.was_ready = reply.status == 200
        except OSError:  # refused, or 503
            return False
        return self.was_ready

    async def until(self, holds: Callable[[], Any], what: str, timeout_s: float = 40) -> None:
        """Wait until `holds()`; fails with the end of the log."""
        end = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < end, f"{self!r}: not within {timeout_s:g} s: {what}\n{self.tail()}"
            await asyncio.sleep(_POLL_S)

    def events(self) -> Iterator[dict[str, Any]]:
        """The log's events (JSON lines); other lines are left out."""
        for line in self.text().splitlines():
            if line.startswith("{"):
                try:
                    yield json.loads(line)
                except ValueError:
                    continue  # killed in the middle of a line

    def text(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def tail(self, lines: int = 25) -> str:
        return "\n".join(self.text().splitlines()[-lines:])


@dataclass
class Crew:
    """Processes of one pipeline: where it is, and everything that was started, in order.

    `settings` are `--set` assignments for every worker. Logs are `folder/logs/NAME-N.log`.
    """

    folder: Path
    bootstrap_servers: str = ""
    prefix: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.alive:
                process.kill()
        for process in self.processes:
            for pipe in (process.popen.stdin, process.popen.stdout):
                if pipe is not None:
                    pipe.close()

    def worker(self, stage: str, *arguments: str, file_limit: int | None = None) -> Process:
        """A worker of `stage`. `file_limit`: the largest file that it may write, in bytes."""
        claims = {"claims.url": str(self.folder / "claims"), "log.format": "json"}
        where = ["--bootstrap-servers", self.bootstrap_servers, "--prefix", self.prefix]
        chosen = [f"--set={k}={v}" for k, v in {**claims, **self.settings}.items()]
        return self.rollstream("worker", stage, *arguments, *where, *chosen, name=stage, file_limit=file_limit)

    def rollstream(self, *arguments: str, name: str | None = None, file_limit: int | None = None) -> Process:
        """The command line program."""
        return self.start(name or arguments[0], sys.executable, "-c", PROGRAM, *arguments, file_limit=file_limit)

    def model(self, *arguments: str) -> str:
        """A scripted model in a process of its own; what `--model` takes."""
        line = [sys.executable, "-m", "rollstream.scripted", "--port", "0", "--with-parent", *arguments]
        process = self.start("model", *line, talk=True)
        assert process.popen.stdout is not None
        found = json.loads(process.popen.stdout.readline() or b"null")
        assert found, f"the scripted model did not start:\n{process.tail()}"
        return f"{found['base_url']}/{found['model']}"

    def start(self, name: str, *line: str, talk: bool = False, file_limit: int | None = None) -> Process:
        """Any program, in a session of its own. `talk` gives it pipes for standard input and output."""
        log = self.folder / "logs" / f"{name}-{len(self.processes)}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            popen = subprocess.Popen(
                _tied(line, file_limit),
                stdin=subprocess.PIPE if talk else subprocess.DEVNULL,
                stdout=subprocess.PIPE if talk else output,
                stderr=output,
                cwd=self.folder,
                env=_environment(self.folder),
                start_new_session=True,
            )
        self.processes.append(Process(name, popen, log))
        return self.processes[-1]

    def logs(self, event: str) -> list[dict[str, Any]]:
        """Events of that name in all logs."""
        return [e for p in self.processes for e in p.events() if e.get("event") == event]


def _tied(line: Sequence[str], file_limit: int | None) -> list[str]:
    """The command line that becomes `line` once its process is tied to ours. A `preexec_fn` is unsafe beside threads."""
    return [sys.executable, "-I", "-S", "-c", _TIED, str(os.getpid()), str(file_limit or ""), *line]


def _environment(folder: Path) -> dict[str, str]:
    """Ours without settings of rollstream, for which the machine of whoever runs the tests may have its own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ROLLSTREAM_") or k == "ROLLSTREAM_CACHE_DIR"}
    return {**kept, "PYTHONPATH": str(ROOT), "ROLLSTREAM_BROKER_DIR": str(folder / "broker")}
