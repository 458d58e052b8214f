"""What environments rely on, whichever back end: programs as Python runs them, slots, choice, failures told apart."""

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.context import PYTHON, Limits
from schemas.errors import DataError, InfrastructureError
from services.sandbox import owner
from services.sandbox.backend import Exit, Launch, TooSlow
from services.sandbox.bubblewrap import WORKDIR, Bubblewrap, workdir
from services.sandbox.choice import AUTOMATIC, REMEMBERED_S, Chosen
from services.sandbox.kit import Kit, remove_orphans
from services.sandbox.options import Options
from services.sandbox.order import check_names
from services.sandbox.removal import remove_tree
from services.sandbox.runtime import Runtime, trees_of
from services.sandbox.sandbox import SandboxService
from services.sandbox.supervisor import Kept
from services.sandbox.syscall_filter import Sharing, compile_filter
from services.sandbox.users import users
from tests.unit.sandbox.conftest import ROOT, SHAPE, lacking, services

ANY = services("bwrap", "landlock")

PROGRAMS = {
    "arguments": "import sys; print(sys.argv, __name__, __file__)",
    "exit": "import atexit; atexit.register(lambda: print('last')); exit(3)",
    "said": "import sys; sys.exit('no')",
    "error": "def f():\n    return 1 / 0\n\nf()\n",
    "syntax": "def f(:\n",
    "input": "print(sum(map(int, open(0).read().split())), input.__name__)",
    "stdin": "print(open('/dev/stdin').read())",
    "unflushed": "f = open('left.txt', 'w')\nf.write('x')\nprint('no newline', end='')",
    "unicode": "print('\\u4e2d\\U0001f600')",
    "main": "import pickle\nclass A: pass\nprint(pickle.loads(pickle.dumps(A())).__class__, __builtins__.__name__)",
    "threads": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()",
    "processes": "import multiprocessing as m\nif __name__ == '__main__':\n    print(m.get_context('fork').Pool(2).map(abs, [-1, -2]))",
    "numpy": "import numpy; print(numpy.arange(3).sum())",
    "sibling": "import helper; print(helper.VALUE)",
    "signal": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "recursion": "def f(n): return f(n + 1)\ntry:\n    f(0)\nexcept RecursionError as error:\n    print(error)",
}


@services("bwrap")
@pytest.mark.parametrize("name", PROGRAMS)
async def test_programs_do_what_they_do_without_us(sandbox, name, tmp_path):
    files = {"main.py": PROGRAMS[name].encode(), "helper.py": b"VALUE = 7\n"}
    for file, data in files.items():
        (tmp_path / file).write_bytes(data)
    ours = await sandbox.run([PYTHON, "main.py", "a", "b"], files=files, stdin=b"1 2 3", collect=["left.txt"])
    argv = [sys.executable, "main.py", "a", "b"]
    bare = await asyncio.to_thread(subprocess.run, argv, cwd=tmp_path, input=b"1 2 3", capture_output=True, check=False)
    here, inside = str(tmp_path).encode(), WORKDIR.encode()
    said = (bare.stdout.replace(here, inside), bare.stderr.replace(here, inside))
    assert (ours.returncode, ours.stdout, ours.stderr) == (bare.returncode, *said)
    assert ours.files.get("left.txt") == ((tmp_path / "left.txt").read_bytes() if name == "unflushed" else None)


@ANY
async def test_other_commands_run_too(sandbox):
    result = await sandbox.run(["sh", "-c", "cat; cat sub/f; exit 4"], stdin=b"in ", files={"sub/f": b"file"})
    assert (result.returncode, result.stdout) == (4, b"in file")
    missing = await sandbox.run(["no-such-program"])
    assert (missing.returncode, missing.stderr) == (127, b"no-such-program: No such file or directory\n")
    module = await sandbox.run([PYTHON, "-m", "json.tool"], stdin=b"[1]")
    assert module.stdout == b"[\n    1\n]\n"


@ANY
async def test_large_input_and_a_program_that_reads_none(sandbox):
    data = b"x" * 3_000_000
    counted, deaf = await asyncio.gather(
        sandbox.run([PYTHON, "-c", "import sys; print(len(sys.stdin.buffer.read()))"], stdin=data),
        sandbox.run([PYTHON, "-c", "print('done')"], stdin=data),
    )
    assert counted.stdout == b"3000000\n"
    assert deaf.stdout == b"done\n"


@ANY
async def test_a_channel_is_a_line_beside_the_outputs(sandbox):
    code = b"""
import socket
line = socket.socket(fileno=3)
while data := line.recv(100):
    line.sendall(data.upper())
    print("got", data)
"""
    program = await sandbox.launcher.launch(Launch([PYTHON, "driver.py"], {"driver.py": code}, channel=True))
    try:
        for word in (b"one", b"two"):
            await program.send(word)
            assert await program.receive() == word.upper()
        await program.stop()
        assert await program.receive() == b""
        assert (await program.wait()).returncode == -9
    finally:
        await program.close()


@ANY
@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../b", "a//b", "", ".", "a/.", "x\0y", "..", "a/.."])
async def test_names_that_leave_the_directory_are_refused(sandbox, name):
    with pytest.raises(DataError, match="must stay in its directory"):
        await sandbox.run(["true"], files={name: b""})
    with pytest.raises(DataError, match="must stay in its directory"):
        await sandbox.run(["true"], collect=[name])


@given(st.text(max_size=40))
def test_a_name_that_is_accepted_stays_below(name):
    try:
        check_names([name])
    except DataError:
        return
    path = os.path.normpath(f"/scratch/{name}")
    assert path == f"/scratch/{name}"


@pytest.mark.parametrize("argv", [[], ["a\0b"]])
@services("bwrap")
async def test_a_command_that_no_system_can_start_is_refused(sandbox, argv):
    with pytest.raises(DataError):
        await sandbox.run(argv)


@ANY
async def test_a_run_that_is_cancelled_leaves_nothing_and_frees_its_slot(sandbox):
    for _ in range(6):  # more than there are slots
        task = asyncio.create_task(sandbox.run([PYTHON, "-c", "import time; time.sleep(60)"]))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert (await sandbox.run([PYTHON, "-c", "print(1)"])).stdout == b"1\n"
    await sandbox.settled()


@pytest.mark.parametrize("below", ["/tmp", "/dev/shm"])
@pytest.mark.skipif(lacking("bwrap") != "", reason="no bubblewrap here")
async def test_a_python_below_a_directory_that_is_empty_inside_works_and_cannot_be_written(below):
    with tempfile.TemporaryDirectory(dir=below) as folder:
        home = Path(folder, "some", "venv")
        await asyncio.to_thread(subprocess.run, [sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
        python = str(home / "bin/python")
        code = "import os, sys\nprint(sys.prefix)\nopen('mine', 'w').write('x')\nopen(os.path.join(sys.prefix, 'x'), 'w')"
        backend = Bubblewrap(Runtime(python, trees_of(python, str(home), sys.base_prefix)), SHAPE)
        try:
            program = await backend.launch(Launch([PYTHON, "-c", code]))
            ended = await program.wait()
            await program.close()
        finally:
            await backend.close()
    assert ended.stdout.decode().strip() == str(home), ended
    assert b"Read-only file system" in ended.stderr


def test_the_working_directory_has_a_name_that_no_tree_takes():
    assert workdir(["/usr", f"{WORKDIR}shop"]) == WORKDIR
    assert workdir([f"{WORKDIR}/checkout/.venv"]) == f"{WORKDIR}_"
    assert workdir([WORKDIR, f"{WORKDIR}_/x"]) == f"{WORKDIR}__"


@ANY
async def test_starts_that_are_cancelled_anywhere_give_everything_back(sandbox):
    """Each is cancelled at another step of the loop, until one comes up before it is: its shape is never the ready one's."""
    me, free = psutil.Process(), len(users()._free)
    backend = sandbox.launcher._backend
    groups = {place for place in (backend._groups.memory, backend._groups.pids) if place}
    descriptors = me.num_fds()
    for steps in [*range(12), *range(12, 200, 20)]:
        task = asyncio.create_task(sandbox.run([PYTHON, "-c", ""], limits=Limits(scratch=(1 << 20) + steps)))
        for _ in range(steps):
            await asyncio.sleep(0 if steps < 12 else 0.0005)
        for _ in range(3):  # and again while it cleans up
            task.cancel()
            await asyncio.sleep(0)
        await asyncio.gather(task, return_exceptions=True)
    await sandbox.settled()
    assert (len(users()._free), me.children(recursive=True), me.num_fds()) == (free, [], descriptors)
    assert not list(backend._kit.directory.glob("scratch-*"))
    assert not [group for place in groups for group in place.glob(f"rollstream-{os.getpid()}-*")]


@services("landlock")
async def test_a_box_that_cannot_be_prepared_gives_its_user_id_back(sandbox):
    free = len(users()._free)
    sandbox.launcher._backend._kit.remove()
    (kit := sandbox.launcher._backend._kit.directory).write_text("in the way")
    with pytest.raises(InfrastructureError, match="could not make"):
        await sandbox.run(["true"])
    kit.unlink()
    assert len(users()._free) == free


@ANY
async def test_a_killed_supervisor_is_the_sandboxs_failure_not_the_programs(sandbox):
    program = await sandbox.launcher.launch(Launch(["sleep", "60"]))
    life = program.box.life
    os.kill(life.start.supervisor(life.process.pid), 9)
    with pytest.raises(InfrastructureError, match="the sandbox broke"):
        await program.wait()
    await program.close()


@services("bwrap", "bwrap-user", "landlock")
async def test_a_closed_program_is_gone_with_its_supervisor_though_it_is_stopped(sandbox):
    program = await sandbox.launcher.launch(Launch(["sleep", "60"]))
    life = program.box.life
    supervisor = psutil.Process(life.start.supervisor(life.process.pid))
    while not supervisor.children():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    below = supervisor.children(recursive=True)
    supervisor.suspend()
    await program.close()
    assert not [process for process in (supervisor, *below) if alive(process)]


def alive(process):
    """Whether it runs; an orphan may wait for its new parent to take note of its end."""
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


@services("bwrap", "landlock")
async def test_a_worker_that_is_killed_leaves_no_program_behind(make):
    code = f"""
import asyncio, sys
from tests.unit.sandbox.conftest import MAKERS
from services.sandbox.backend import Launch
async def main():
    program = await MAKERS[{make!r}]().launch(Launch(["sleep", "61.5"]))
    life = program.box.life
    print(life.start.supervisor(life.process.pid), flush=True)
    await program.wait()
asyncio.run(main())
"""
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=subprocess.PIPE)
    supervisor = psutil.Process(int(await worker.stdout.readline()))
    worker.kill()
    await worker.wait()
    await asyncio.to_thread(psutil.wait_procs, [supervisor], 10)
    assert not alive(supervisor)
    assert not [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "61.5"]]


class Scripted:
    """A back end that counts."""

    def __init__(self, name, reason=None, unsafe=False, slow=0):
        self.slow, self.answer = slow, asyncio.Event()
        self.answer.set()
        self.name, self.reason, self.unsafe = name, reason, unsafe
        self.probes = self.running = self.most = self.closed = 0
        self.go_on = asyncio.Event()

    async def probe(self):
        self.probes += 1
        if self.slow >= self.probes:
            raise TooSlow("no answer in time")
        await self.answer.wait()
        return self.reason

    async def launch(self, launch):
        self.running += 1
        self.most = max(self.most, self.running)
        return self

    async def wait(self):
        await self.go_on.wait()
        return Exit(0)

    async def close(self):
        self.running -= 1
        self.closed += 1


def chosen(backends, setting="auto"):
    return Chosen(Options(setting), {backend.name: lambda _, backend=backend: backend for backend in backends})


async def test_no_more_programs_than_slots_run_at_once():
    backend = Scripted("bwrap")
    service = SandboxService(Options(slots=3), chosen([backend]))
    runs = [asyncio.create_task(service.run(["true"])) for _ in range(20)]
    while backend.running < 3:  # noqa: ASYNC110
        await asyncio.sleep(0)
    backend.go_on.set()
    await asyncio.gather(*runs)
    await service.settled()
    assert (backend.most, backend.running, backend.closed, backend.probes) == (3, 0, 20, 1)


async def test_the_first_back_end_that_works_is_taken_and_the_others_lack_is_said(capsys):
    backends = [Scripted("bwrap", "it is not installed"), Scripted("landlock"), Scripted("container")]
    assert (await chosen(backends).backend()).name == "landlock"
    said = capsys.readouterr()
    assert "bwrap: it is not installed" in said.out + said.err
    assert [backend.probes for backend in backends] == [1, 1, 0]


async def test_a_back_end_that_is_slow_to_answer_is_asked_again_before_a_weaker_one_is_taken():
    backends = [Scripted("bwrap", slow=2), Scripted("landlock"), Scripted("container")]
    assert (await chosen(backends).backend()).name == "bwrap"
    assert [(backend.probes, backend.closed) for backend in backends] == [(3, 0), (0, 0), (0, 0)]
    backends = [Scripted("bwrap", slow=99), Scripted("landlock"), Scripted("container")]
    assert (await chosen(backends).backend()).name == "landlock"
    assert [(backend.probes, backend.closed) for backend in backends] == [(3, 1), (1, 0), (0, 0)]


async def test_that_there_is_none_is_remembered_for_a_while():
    backends, now = [Scripted(name, f"no {name}") for name in AUTOMATIC], [0.0]
    choice = chosen(backends)
    choice.clock = lambda: now[0]
    for at, probes in ((0.0, 1), (REMEMBERED_S - 1, 1), (REMEMBERED_S + 1, 2)):
        now[0] = at
        with pytest.raises(InfrastructureError, match=r"no bwrap.*no container"):
            await choice.backend()
        assert [(backend.probes, backend.closed) for backend in backends] == [(probes, probes)] * 3


async def test_a_search_goes_on_when_the_rollout_that_began_it_is_cancelled():
    backend = Scripted("bwrap")
    backend.answer.clear()
    choice = chosen([backend])
    first, second = (asyncio.create_task(choice.backend()) for _ in range(2))
    while not backend.probes:  # noqa: ASYNC110
        await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    backend.answer.set()
    assert await second is backend
    assert (backend.probes, backend.closed) == (1, 0)


async def test_a_search_that_is_ended_leaves_no_back_end():
    backend = Scripted("bwrap")
    backend.answer.clear()
    choice = chosen([backend])
    waiting = asyncio.create_task(choice.backend())
    while not backend.probes:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await choice.close()
    assert backend.closed == 1
    assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], asyncio.CancelledError)


async def test_a_back_end_that_cannot_be_set_up_is_no_back_end():
    def full(_):
        raise OSError(28, "No space left on device")

    choice = Chosen(Options(), {**chosen([Scripted("landlock")]).makers, "bwrap": full})
    assert (await choice.backend()).name == "landlock"


@services("bwrap", "landlock")
async def test_a_box_that_does_not_speak_in_time_is_told_as_slow_and_is_gone(sandbox, monkeypatch):
    monkeypatch.setattr("services.sandbox.box.START_S", 0.0)
    with pytest.raises(TooSlow):
        await sandbox.launcher._backend.probe()
    assert psutil.Process().children(recursive=True) == []


async def test_without_any_back_end_nothing_runs_unsafely():
    backends = [Scripted(name, f"no {name}") for name in ("bwrap", "landlock", "container")] + [
        Scripted("rlimits", unsafe=True)
    ]
    with pytest.raises(InfrastructureError, match=r"bwrap: no bwrap; landlock: no landlock; container: no container.*rlimits"):
        await chosen(backends).backend()
    assert backends[-1].probes == 0


async def test_the_unsafe_one_is_used_when_it_is_named_and_marks_its_results(capsys):
    backend = Scripted("rlimits", unsafe=True)
    backend.go_on.set()
    service = SandboxService(Options("rlimits"), chosen([backend], "rlimits"))
    assert (await service.run(["true"])).unsafe
    said = capsys.readouterr()
    assert "not isolated" in said.out + said.err


@services("rlimits")
async def test_the_real_unsafe_one_marks_its_results(sandbox):
    assert (await sandbox.run(["true"])).unsafe


async def test_a_sandbox_that_is_never_used_asks_the_machine_nothing():
    backend = Scripted("bwrap")
    service = SandboxService(Options(), chosen([backend]))
    await service.start()
    await service.close()
    assert (backend.probes, backend.closed) == (0, 0)


@given(st.lists(st.binary(max_size=200), max_size=30), st.integers(0, 100))
def test_head_and_tail_are_kept(parts, size):
    kept, whole = Kept(size), b"".join(parts)
    for part in parts:
        kept.add(part)
    value = kept.value()
    if len(whole) <= size:
        assert value == whole
    else:
        head, tail = whole[: size // 2], whole[len(whole) - (size - size // 2) :]
        assert value == head + b"\n[%d bytes left out]\n" % (len(whole) - size) + tail


def test_the_filter_is_known_where_it_says_and_empty_elsewhere():
    assert compile_filter(machine="riscv64") == b""
    sizes = {
        machine: len(compile_filter(Sharing(system=True, user=True, signals=True, network=False), machine)) // 8
        for machine in ("x86_64", "aarch64")
    }
    assert all(60 < size < 4096 for size in sizes.values())  # the kernel takes 4,096 instructions


def test_what_a_killed_worker_left_is_removed_and_nothing_else(tmp_path):
    dead = subprocess.Popen(["true"])
    dead.wait()
    here = "rollstream-sandbox"
    pid, started, namespace = owner.mark().split("-")
    names = [f"{here}-{dead.pid}-{started}-{namespace}-abc", f"{here}-{pid}-{int(started) - 1}-{namespace}-abc"]
    names += [f"{here}-{owner.mark()}-abc", f"{here}-{dead.pid}-{started}-1-abc", "other"]
    for name in names:
        (tmp_path / name / "scratch").mkdir(parents=True)
    (tmp_path / f"{here}-{dead.pid}-1-{namespace}-link").symlink_to(tmp_path / "other")
    remove_orphans(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names[2:], f"{here}-{dead.pid}-1-{namespace}-link"])


def test_an_orphan_that_cannot_be_removed_is_told_once_and_keeps_no_worker_from_starting(tmp_path, monkeypatch, capsys):
    orphan = tmp_path / f"rollstream-sandbox-{owner.mark().replace('-', '-1', 1)}-abc"
    orphan.mkdir()

    def refuse(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "rmdir", refuse)
    for _ in range(2):
        remove_orphans(tmp_path)
    said = capsys.readouterr()
    assert (said.out + said.err).count("not_removed") == 1


def deep(folder, depth):
    """A chain of directories with a file in each, deeper than a path can say."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=at))
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


def test_a_tree_of_any_depth_is_removed_and_links_are_not_followed(tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    tree = tmp_path / "tree"
    for name in ("a", "b/c", "shut/in"):
        (tree / name).mkdir(parents=True)
    (tree / "b" / "link").symlink_to(kept)
    (tree / "outside").symlink_to(kept)
    os.mkfifo(tree / "b" / "pipe")
    (tree / "shut").chmod(0)
    deep(tree / "a", 5_000)
    assert remove_tree(tree) is None
    assert not tree.exists()
    assert (kept / "file").read_text() == "x"
    assert remove_tree(tree) is None  # gone already


def test_a_removal_gives_up_in_time_and_goes_on_later(tmp_path):
    deep(tmp_path, 50)
    assert isinstance(remove_tree(tmp_path / "d", 0.0), TimeoutError)
    assert remove_tree(tmp_path / "d") is None


@pytest.mark.skipif(not ROOT, reason="user ids are of workers that are root")
@services("landlock", "rlimits")
async def test_a_very_deep_tree_goes_with_its_program_and_the_user_id_comes_back(sandbox):
    free = len(users()._free)
    code = "import os\nfor _ in range(5000):\n    os.mkdir('d')\n    os.chdir('d')\nprint('made')"
    await sandbox.run([PYTHON, "-c", code])
    await sandbox.settled()
    assert len(users()._free) == free
    kit = sandbox.launcher._backend._kit.directory
    assert not list(kit.glob("scratch-*"))
    await sandbox.close()
    assert not kit.exists()


def test_a_kit_that_cannot_be_filled_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(OSError, match="No such file"):
        Kit({"no/folder": b""})
    assert list(tmp_path.iterdir()) == []


def test_the_kit_is_readable_by_all_and_gone_afterwards():
    kit = Kit()
    assert kit.directory.stat().st_mode & 0o777 == 0o755
    kit.remove()
    assert not kit.directory.exists()
