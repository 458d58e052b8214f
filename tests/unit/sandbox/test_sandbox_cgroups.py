"""Where control groups are looked for and what is written: both versions, on a folder that stands for the file system."""

import asyncio
import subprocess
import sys

import psutil
import pytest

from services.sandbox import cgroups, owner
from tests.unit.sandbox.conftest import lacking


def test_version_two_is_used_where_both_controllers_are_delegated(tmp_path, monkeypatch):
    read = cgroups._read
    monkeypatch.setattr(cgroups, "_read", lambda file: read(file).replace("+", ""))  # the kernel answers names without signs
    own = tmp_path / "service"
    own.mkdir()
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
    found = cgroups.find(tmp_path, "0::/service\n")
    assert (found.memory, found.pids, found.unified) == (own, own, True)
    group = cgroups.make(found, 7)
    group.limit(1000, 5)
    assert (group.memory / "cgroup.procs").read_text() == "7"
    assert (group.memory / "memory.max").read_text() == str(1000 + cgroups.SUPERVISOR_BYTES)
    assert (group.memory / "memory.swap.max").read_text() == "0"
    assert (group.memory / "pids.max").read_text() == "6"
    assert not group.out_of_memory
    (group.memory / "memory.events").write_text("low 0\noom 1\noom_kill 1\n")
    assert group.out_of_memory


def test_version_two_is_left_alone_where_controllers_are_not_delegated(tmp_path):
    own = tmp_path / "service"
    (own / "cgroup.subtree_control").mkdir(parents=True)  # cannot be written
    (tmp_path / "cgroup.controllers").write_text("memory pids")
    assert not cgroups.find(tmp_path, "0::/service\n").usable


def test_version_one_has_a_group_for_each_controller(tmp_path):
    for place in ("memory/a", "pids/b"):
        (tmp_path / place).mkdir(parents=True)
    found = cgroups.find(tmp_path, "4:memory:/a\n8:pids:/b\n2:cpu,cpuacct:/\n")
    assert (found.memory, found.pids, found.unified) == (tmp_path / "memory/a", tmp_path / "pids/b", False)
    group = cgroups.make(found, 7)
    group.limit(1000, 5)
    assert (group.memory / "memory.limit_in_bytes").read_text() == str(1000 + cgroups.SUPERVISOR_BYTES)
    assert (group.pids / "pids.max").read_text() == "6"
    (group.memory / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert group.out_of_memory


def test_a_machine_without_groups_is_served_without(tmp_path):
    found = cgroups.find(tmp_path, "")
    assert not found.usable
    assert cgroups.make(found, 1) is None


def test_groups_that_killed_workers_left_are_removed_and_no_others(tmp_path):
    pid, started, namespace = owner.mark().split("-")
    left = [f"rollstream-{pid}-{int(started) - 1}-{namespace}-0", f"rollstream-{2**22 + 1}-5-{namespace}-trial"]
    full = f"rollstream-{2**22 + 1}-5-{namespace}-1"
    kept = [f"rollstream-{owner.mark()}-0", f"rollstream-{2**22 + 1}-5-1-0", "rollstream-7", "user.slice", full]
    for version in ("memory/a", "memory/beside", "pids/b"):
        for name in (*left, *kept):
            (tmp_path / version / name).mkdir(parents=True)
        (tmp_path / version / full / "process").mkdir()  # stands for one that still runs: it cannot be removed
    cgroups.find(tmp_path, "4:memory:/a\n8:pids:/b\n")
    for version in ("memory/a", "memory/beside", "pids/b"):
        assert sorted(path.name for path in (tmp_path / version).iterdir()) == sorted(kept)


@pytest.mark.skipif(not cgroups.find().usable or lacking("bwrap") != "", reason="no control groups can be made here")
async def test_the_next_worker_removes_the_groups_of_one_that_was_killed():
    code = """
import asyncio
from tests.unit.sandbox.conftest import MAKERS
from services.sandbox.backend import Launch
async def main():
    program = await MAKERS["bwrap"]().launch(Launch(["sleep", "61.5"]))
    life = program.box.life
    print(life.start.supervisor(life.process.pid), flush=True)
    await program.wait()
asyncio.run(main())
"""
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=subprocess.PIPE)
    supervisor = psutil.Process(int(await worker.stdout.readline()))
    found = cgroups.find()
    places = {place for place in (found.memory, found.pids) if place}

    def groups():
        return [group for place in places for group in place.glob(f"rollstream-{worker.pid}-*")]

    assert len(groups()) == len(places)
    worker.kill()
    await worker.wait()
    await asyncio.to_thread(psutil.wait_procs, [supervisor], 10)
    while any((group / "cgroup.procs").read_text() for group in groups()):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    cgroups.find()
    assert groups() == []
