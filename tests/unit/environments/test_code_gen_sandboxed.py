"""code_gen in the machine's own sandbox: programs that look for the expected outputs or the report's channel find neither."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from environments.code_gen import checker
from environments.code_gen.checker import Checking, HiddenTests, Report, check
from schemas.errors import InfrastructureError
from services.sandbox.options import Options
from services.sandbox.sandbox import SandboxService
from tests.support.bare_sandbox import BareSandbox

FORGING = r"""
import glob, os, struct
report = b'\n{"passed": 1, "last": null, "metadata": {}}\n' * 3
frames = struct.pack(">Q", 2) + b"{}"
opened = []
for path in glob.glob("/proc/[0-9]*/fd/*"):
    if path.startswith(f"/proc/{os.getpid()}/"):
        continue
    for flags in (os.O_WRONLY | os.O_NONBLOCK, os.O_RDONLY | os.O_NONBLOCK):
        try:
            fd = os.open(path, flags)
            opened.append(path)
            os.write(fd, report + frames)
        except OSError:
            pass
print(*opened)
"""

READING = r"""
import ctypes, glob, os
wanted = "".join(["258", "19"]).encode()
found = []
for path in glob.glob("/proc/[0-9]*/maps"):
    pid = path.split("/")[2]
    if int(pid) == os.getpid():
        continue
    try:
        memory = open(f"/proc/{pid}/mem", "rb", 0)
        for line in open(path):
            start, end = (int(x, 16) for x in line.split()[0].split("-"))
            try:
                memory.seek(start)
                if wanted in memory.read(min(end - start, 1 << 24)):
                    found.append(pid)
            except (OSError, ValueError, OverflowError):
                pass
    except OSError:
        pass
    if ctypes.CDLL(None).ptrace(16, int(pid), 0, 0) == 0:
        found.append("traced " + pid)
for root, _, names in os.walk("."):
    for name in names:
        try:
            if wanted in open(os.path.join(root, name), "rb").read():
                found.append(name)
        except OSError:
            pass
print(wanted.decode() if found else "nothing")
"""

KILLING = "import posix, time\nposix.kill(-1, 9)\ntime.sleep(5)"


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="module", params=["bwrap", "landlock"])
def sandbox(runner: asyncio.Runner, request: pytest.FixtureRequest) -> Iterator[SandboxService]:
    service = SandboxService(Options(backend=request.param))
    try:
        runner.run(service.launcher.backend())
    except InfrastructureError as e:
        pytest.skip(f"this machine has no sandbox: {e}")
    yield service
    runner.run(service.close())


def checked(runner: asyncio.Runner, sandbox: SandboxService, code: str, **checking: int) -> Report:
    tests = HiddenTests(["1\n"], ["25819"])
    return runner.run(check(sandbox, code, tests, Checking(**{"timeout_s": 5, "memory": 1 << 30, **checking})))


def test_a_right_program_passes(runner: asyncio.Runner, sandbox: SandboxService) -> None:
    assert checked(runner, sandbox, "print(int(input()) + 25818)").result == (True,)


def test_it_passes_where_python_keeps_compiled_code_in_one_place(
    runner: asyncio.Runner, sandbox: SandboxService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(checker, "_program", checker._program.__wrapped__)  # made anew, and not kept
    test_a_right_program_passes(runner, sandbox)


def test_what_a_program_imports_it_finds(runner: asyncio.Runner, sandbox: SandboxService) -> None:
    code = "import xml.dom.minidom, numpy, multiprocessing\nprint(25819 if multiprocessing.get_context('spawn') else '')"
    assert checked(runner, sandbox, code).result == (True,)


@pytest.mark.parametrize("name", ["wrapping", "guarding", "running", "supervising"])
def test_a_checker_that_cannot_run_the_program_gives_no_score(
    runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    broken = f"environments/code_gen/checking/{name}.py"
    files = {file: data for file, data in checker._program().items() if not file.endswith(".pyc")}
    monkeypatch.setattr(checker, "_program", lambda: {**files, broken: b"raise ModuleNotFoundError('lost')"})
    with pytest.raises(InfrastructureError, match="the checker"):
        runner.run(check(BareSandbox(), "print(25819)", HiddenTests(["1"], ["25819"]), Checking(5, 1 << 30)))


def test_no_descriptor_of_another_process_can_be_opened(runner: asyncio.Runner, sandbox: SandboxService) -> None:
    report = checked(runner, sandbox, FORGING)
    assert report.result == (-2,)
    assert report.metadata is not None
    assert report.metadata["output"] == "\n"


def test_the_expected_output_is_nowhere_to_be_read(runner: asyncio.Runner, sandbox: SandboxService) -> None:
    report = checked(runner, sandbox, READING)
    assert report.result == (-2,)
    assert report.metadata is not None
    assert report.metadata["output"] == "nothing\n"


def test_killing_everything_is_no_answer(runner: asyncio.Runner, sandbox: SandboxService) -> None:
    assert checked(runner, sandbox, KILLING).result == (-1,)


def test_memory_beyond_the_limit_is_an_error_of_the_program(runner: asyncio.Runner, sandbox: SandboxService) -> None:
    assert checked(runner, sandbox, "x = bytearray(800 << 20)\nprint(25819)", memory=256 << 20).result in ((-4,), (-1,))


def test_there_is_no_network(runner: asyncio.Runner, sandbox: SandboxService) -> None:
    code = "import socket\nsocket.create_connection(('192.0.2.1', 80), 2)"
    assert checked(runner, sandbox, code).result == (-4,)
