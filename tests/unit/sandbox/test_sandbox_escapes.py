"""What a hostile program tries, on every back end that this machine has: each test is a program that reports what it got."""

import asyncio
import json
import os
import socket
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from environments.context import PYTHON, Limits
from tests.unit.sandbox.conftest import ROOT, services

ISOLATED = services("bwrap", "bwrap-user", "landlock")
ALL = services("bwrap", "bwrap-user", "landlock", "rlimits")

TRY = b"""
import json, os, sys
found = {}
def attempt(name, function):
    try:
        found[name] = repr(function())[:200]
    except BaseException as error:
        found[name] = "refused " + type(error).__name__
"""
TOLD = b"\nprint(json.dumps(found))\n"


async def tried(sandbox, body, *arguments, **options):
    """What `attempt(name, function)` calls in `body` came to; `repr` of the value, or `refused ERROR`."""
    result = await sandbox.run([PYTHON, "main.py", *arguments], files={"main.py": TRY + body.encode() + TOLD}, **options)
    assert result.returncode == 0, result
    return json.loads(result.stdout)


def refused(found):
    return {name: value for name, value in found.items() if not value.startswith("refused")}


@ISOLATED
async def test_the_network_is_out_of_reach(sandbox):
    with socket.create_server(("127.0.0.1", 0)) as server:
        body = f"""
import socket
port = {server.getsockname()[1]}
attempt("tcp", lambda: socket.create_connection(("127.0.0.1", port), 2))
attempt("far", lambda: socket.create_connection(("192.0.2.1", 80), 2))
attempt("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53)))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).sendto(b"x", ("192.0.2.1", 0)))
attempt("name", lambda: socket.getaddrinfo("example.org", 80))
"""
        assert refused(await tried(sandbox, body)) == {}


@ISOLATED
@pytest.mark.parametrize("network", [False, True])
async def test_only_usual_families_of_sockets_can_be_made(sandbox, network):
    body = """
import socket
usual = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)
for family in range(1, 64):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
        if family not in usual:
            attempt(f"{family} {kind}", lambda: socket.socket(family, kind, 0))
attempt("high bits", lambda: __import__("ctypes").CDLL(None).socket(socket.AF_NETLINK | 1 << 32, 3, 0) < 0 and 1 / 0)
import errno
try:
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
except OSError as error:
    assert error.errno in (errno.EAFNOSUPPORT, errno.EACCES), error
"""
    limits = Limits(network=network)
    assert refused(await tried(sandbox, body, limits=limits)) == {}
    if network:
        allowed = await tried(
            sandbox, "import socket\nattempt('name', lambda: socket.getaddrinfo('localhost', 80))\n", limits=limits
        )
        assert "127.0.0.1" in allowed["name"]


@services("bwrap", "bwrap-user")
async def test_sockets_of_the_usual_families_work_in_a_namespace_of_their_own(sandbox):
    body = (
        "import socket\nfor family in (1, 2, 10):\n    attempt(str(family), lambda: socket.socket(family).family == family)\n"
    )
    assert await tried(sandbox, body) == {"1": "True", "2": "True", "10": "True"}


@ISOLATED
async def test_unix_sockets_of_the_machine_are_out_of_reach(sandbox, tmp_path):
    tmp_path.chmod(0o777)
    name = f"rollstream-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as abstract:
        server.bind(str(tmp_path / "socket"))
        server.listen()
        abstract.bind(f"\0{name}")
        abstract.listen()
        body = f"""
import socket
attempt("path", lambda: socket.socket(socket.AF_UNIX).connect({str(tmp_path / "socket")!r}))
attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect(chr(0) + {name!r}))
"""
        assert refused(await tried(sandbox, body)) == {}


@ISOLATED
async def test_files_of_the_machine_can_neither_be_read_nor_written(sandbox, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("token")
    for path in (secret, *tmp_path.parents, tmp_path):
        if path.is_relative_to("/tmp") and path != Path("/tmp"):
            path.chmod(0o777)
    here = str(Path(__file__).parent)
    body = f"""
secret, here = {str(secret)!r}, {here!r}
attempt("read", lambda: open(secret).read())
attempt("list", lambda: os.listdir(os.path.dirname(secret)))
attempt("checkout", lambda: os.listdir(here))
attempt("shadow", lambda: open("/etc/shadow").read())
attempt("home", lambda: os.listdir(os.path.expanduser("~root")))
attempt("write", lambda: open(secret, "w").write("x"))
attempt("append", lambda: open(secret, "a").write("x"))
attempt("truncate", lambda: os.truncate(secret, 0))
attempt("remove", lambda: os.remove(secret))
attempt("rename", lambda: os.rename(secret, "mine"))
attempt("link", lambda: (os.link(secret, "mine"), open("mine").read()))
attempt("symlink", lambda: (os.symlink(secret, "soft"), open("soft").read()))
attempt("chmod", lambda: os.chmod("/usr/bin/env", 0o777))
attempt("mode", lambda: os.chmod(secret, 0))
attempt("usr", lambda: open("/usr/lib/x", "w"))
attempt("packages", lambda: open(os.path.join(os.path.dirname(os.__file__), "x.py"), "w"))
attempt("device", lambda: os.mknod("disk", 0o660 | 0o060000, os.makedev(8, 0)))
"""
    got = refused(await tried(sandbox, body))
    got.pop("home", None)  # an empty directory above the interpreter's own
    assert got == {}
    assert secret.read_text() == "token"
    assert secret.stat().st_mode & 0o777 == 0o777


@ISOLATED
async def test_the_parents_environment_and_memory_cannot_be_read(sandbox, monkeypatch):
    body = f"""
outside, parent = {os.getpid()}, os.getppid()
for name in ("environ", "mem", "maps", "cmdline", "root", "fd"):
    for pid in (outside, parent):
        path = f"/proc/{{pid}}/{{name}}"
        attempt(f"{{pid}} {{name}}", lambda: os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(9))
"""
    got = refused(await tried(sandbox, body))
    assert {name for name in got if name.split()[0] == str(os.getpid())} == set()
    # The supervisor's command line may be seen in the program's own PID namespace. It tells nothing; the rest is out of reach.
    assert {name.split()[1] for name in got} <= {"cmdline"}


@ALL
async def test_the_environment_holds_nothing_of_the_workers(sandbox, monkeypatch):
    monkeypatch.setenv("ROLLSTREAM_SECRET", "token")
    found = await tried(sandbox, 'attempt("names", lambda: sorted(os.environ))')
    names = "HOME LANG OMP_NUM_THREADS OPENBLAS_NUM_THREADS PATH PYTHONDONTWRITEBYTECODE PYTHONHASHSEED PYTHONNOUSERSITE TMPDIR"
    assert found["names"] == repr(names.split())[:200]


@ISOLATED
async def test_other_processes_cannot_be_signalled(sandbox):
    with subprocess.Popen(["sleep", "30"], user=65_534 if ROOT else None) as victim:  # noqa: ASYNC220
        try:
            body = f"""
victim = {victim.pid}
attempt("kill", lambda: os.kill(victim, 9))
attempt("pidfd", lambda: os.pidfd_open(victim) and 0 or __import__("signal").pidfd_send_signal(os.pidfd_open(victim), 9))
attempt("worker", lambda: os.kill({os.getpid()}, 9))
attempt("supervisor", lambda: os.kill(os.getppid(), 9))
attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, victim, 19))
"""
            found = await tried(sandbox, body)
            found.pop("supervisor")  # the first process of a namespace is deaf to it: we got an answer
            assert refused(found) == {}
            assert victim.poll() is None
        finally:
            victim.kill()


@ISOLATED
async def test_no_namespaces_no_mounts_no_tracing(sandbox):
    body = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    result = libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "no")
    return result
x86 = os.uname().machine == "x86_64"
attempt("unshare user", lambda: call(272 if x86 else 97, 0x10000000))
attempt("unshare net", lambda: call(272 if x86 else 97, 0x40000000))
attempt("clone", lambda: call(56 if x86 else 220, 0x10000000 | 17, 0, 0, 0, 0))
attempt("mount", lambda: call(165 if x86 else 40, b"none", b"/tmp", b"tmpfs", 0, 0))
attempt("ptrace", lambda: call(101 if x86 else 117, 16, os.getppid(), 0, 0))
attempt("bpf", lambda: call(321 if x86 else 280, 0, 0, 0))
attempt("io_uring", lambda: call(425, 1, 0))
attempt("keyctl", lambda: call(250 if x86 else 219, 0, -3, 1))
attempt("chroot", lambda: os.chroot("."))
attempt("setuid", lambda: os.setuid(0))
"""
    assert refused(await tried(sandbox, body)) == {}


@ALL
async def test_a_fork_storm_is_bounded_and_leaves_nothing(sandbox):
    before = set(psutil.pids())
    storm = b"""
import os, time
made = 0
try:
    for _ in range(500):
        if os.fork() == 0:
            time.sleep(60)
        made += 1
except BlockingIOError:
    print("stopped at", made, flush=True)
time.sleep(60)
"""
    result = await sandbox.run([PYTHON, "main.py"], files={"main.py": storm}, limits=Limits(wall_s=1.0, processes=20))
    assert result.limit == "wall"
    said, at = result.stdout.decode().rsplit(" ", 1)
    assert said == "stopped at"
    assert 10 <= int(at) <= 20
    await gone(before, "main.py")


@ALL
async def test_a_child_in_a_session_of_its_own_is_dead_afterwards(sandbox):
    mark = f"rollstream-mark-{os.getpid()}"
    code = f"""
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "{mark}"], start_new_session=True)
print("ok")
"""
    result = await sandbox.run([PYTHON, "-c", code])
    assert result.stdout == b"ok\n"
    assert [p for p in psutil.process_iter(["cmdline"]) if mark in (p.info["cmdline"] or [])] == []


@ALL
async def test_memory_is_limited(sandbox):
    code = "data = bytearray(1 << 30)"
    result = await sandbox.run([PYTHON, "-c", code], limits=Limits(memory=128 << 20))
    assert result.returncode != 0
    assert b"MemoryError" in result.stderr or result.limit == "memory"


@services("bwrap", "landlock")
async def test_memory_of_the_whole_tree_is_limited_where_groups_can_be_made(sandbox):
    backend = await sandbox.launcher.backend()
    if not backend._groups.memory:
        pytest.skip("control groups are not writable here")
    code = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        data = bytearray(60 << 20)
        time.sleep(20)
os.wait()
time.sleep(20)
"""
    result = await sandbox.run([PYTHON, "-c", code], limits=Limits(memory=128 << 20, wall_s=1.5))
    assert result.limit == "memory"  # a child was killed; the program itself waited until its time was up
    assert result.returncode == -9


@ALL
async def test_output_is_cut_to_its_head_and_tail(sandbox):
    code = "import sys\nprint('head')\nfor _ in range(1000): sys.stdout.write('x' * 3000)\nprint('tail')"
    result = await sandbox.run([PYTHON, "-c", code], limits=Limits(output=100_000))
    assert result.returncode == 0
    assert result.stdout.startswith(b"head\nxxx")
    assert result.stdout.endswith(b"xxxtail\n")
    assert b"bytes left out" in result.stdout
    assert len(result.stdout) < 100_100


@ALL
async def test_a_flood_of_output_is_stopped(sandbox):
    code = "import os\nfor _ in range(100): os.write(1, b'x' * 1_000_000)"
    started = time.monotonic()
    result = await sandbox.run([PYTHON, "-c", code], limits=Limits(wall_s=20))
    assert result.limit == "output"
    assert len(result.stdout) < (1 << 20) + 100
    assert time.monotonic() - started < 15


@ALL
async def test_time_is_limited_on_the_wall_and_on_the_processor(sandbox):
    slept, span = await asyncio.gather(
        sandbox.run([PYTHON, "-c", "print(1, flush=True)\nimport time; time.sleep(60)"], limits=Limits(wall_s=0.7)),
        sandbox.run([PYTHON, "-c", "while True: pass"], limits=Limits(wall_s=30, cpu_s=0.4)),
    )
    assert (slept.limit, slept.returncode, slept.stdout, slept.timed_out) == ("wall", -9, b"1\n", True)
    assert (span.limit, span.timed_out) == ("cpu", True)
    assert span.wall_s < 15


@ALL
async def test_the_scratch_directory_is_limited(sandbox):
    body = """
import time
def fill():
    for number in range(64):
        with open(f"f{number}", "wb") as file:
            file.write(b"x" * (1 << 20))
    time.sleep(5)
attempt("fill", fill)
"""
    result = await sandbox.run(
        [PYTHON, "main.py"], files={"main.py": TRY + body.encode() + TOLD}, limits=Limits(scratch=8 << 20, wall_s=10)
    )
    assert result.limit == "scratch" or json.loads(result.stdout)["fill"] == "refused OSError"


@ALL
async def test_a_file_may_not_grow_past_its_limit(sandbox):
    found = await tried(
        sandbox,
        'attempt("big", lambda: open("f", "wb", 0).write(b"x" * 4096) + open("f", "ab", 0).write(b"x"))',
        limits=Limits(file_size=4096),
    )
    assert found["big"] == "refused OSError"


@ALL
async def test_files_that_are_read_back_are_the_programs_own(sandbox, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("token")
    code = f"""
import os
os.symlink({str(secret)!r}, "soft")
os.symlink({str(tmp_path)!r}, "dir")
os.symlink("/etc/passwd", "passwd")
os.mkfifo("fifo")
os.mkdir("sub")
open("sub/real", "w").write("mine")
open("large", "wb").write(b"x" * 200_000)
"""
    names = ["soft", "dir/secret", "passwd", "fifo", "sub", "sub/real", "large", "missing", "main/x"]
    result = await sandbox.run([PYTHON, "-c", code], collect=names, limits=Limits(scratch=100_000 + (4 << 20), wall_s=5))
    assert result.returncode == 0, result
    assert dict(result.files) == {"sub/real": b"mine", "large": b"x" * 200_000}


@ALL
async def test_nothing_of_one_program_is_left_for_the_next(sandbox):
    code = "import os; print(os.listdir('.'), os.listdir(os.environ['TMPDIR'])); open('left', 'w'); open('../left', 'w')"
    for _ in range(2):
        result = await sandbox.run([PYTHON, "-c", code])
        assert result.stdout == b"[] ['work']\n"


async def gone(before, word):
    """Wait until no process is left that was not there before and has `word` in its command line."""
    async with asyncio.timeout(10):
        while [pid for pid in set(psutil.pids()) - before if word in " ".join(_command(pid))]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def _command(pid):
    try:
        return psutil.Process(pid).cmdline()
    except psutil.Error:
        return []
