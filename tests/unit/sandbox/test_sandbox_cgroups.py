"""Where control groups are looked for and what is written: both versions, on a folder that stands for the file system."""

from services.sandbox import cgroups


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
