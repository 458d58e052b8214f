import asyncio
import json
import os
import subprocess
import sys

import pytest

from rollstream.broker import state
from rollstream.broker.errors import BrokerBusyError, BrokerError
from rollstream.broker.paths import Layout, cache_dir, default_data_dir
from rollstream.broker.properties import Ports

PORTS = Ports(1001, 1002)


def test_a_note_of_a_living_process_is_read_back(tmp_path):
    layout = Layout(tmp_path)
    written = state.note(layout, os.getpid(), PORTS, detached=True)
    assert state.read_note(layout) == written
    assert (written.bootstrap_servers, written.detached, written.log) == ("127.0.0.1:1001", True, tmp_path / "broker.log")


def test_a_note_of_an_ended_process_reads_as_none(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    layout = Layout(tmp_path)
    state.note(layout, process.pid, PORTS, detached=True)
    assert state.read_note(layout) is not None
    process.communicate()
    assert state.read_note(layout) is None


def test_a_note_whose_number_belongs_to_another_process_now_reads_as_none(tmp_path):
    layout = Layout(tmp_path)
    state.note(layout, os.getpid(), PORTS, detached=True)
    fields = json.loads(layout.state.read_text())
    layout.state.write_text(json.dumps({**fields, "process_started_at": fields["process_started_at"] - 60}))
    assert state.read_note(layout) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"ports": {"broker": 1}}', '{"pid": 1, "ports": 3}', "\x00"])
def test_a_damaged_note_reads_as_none(tmp_path, text):
    layout = Layout(tmp_path)
    layout.state.write_text(text)
    layout.ports.write_text(text)
    assert state.read_note(layout) is None
    assert state.saved_ports(layout) is None


async def test_the_lock_is_held_by_whoever_inherited_it_and_ends_with_the_last(tmp_path):
    layout = Layout(tmp_path)
    lock = await state.take_lock(layout)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE, pass_fds=(lock.fileno(),)
    )
    lock.close()
    with pytest.raises(BrokerBusyError, match=f"process {os.getpid()}") as refused:
        await state.take_lock(layout, wait_s=0.05)
    assert refused.value.pid == os.getpid()
    child.kill()
    await child.wait()
    (await state.take_lock(layout, wait_s=0.05)).close()


async def test_a_directory_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BrokerError, match=r"data directory .*file/broker cannot be used: Not a directory"):
        await state.take_lock(Layout(tmp_path / "file" / "broker"))


def test_directories_can_be_set_and_have_defaults(monkeypatch, tmp_path):
    monkeypatch.setenv("ROLLSTREAM_BROKER_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("ROLLSTREAM_CACHE_DIR", str(tmp_path / "cache"))
    assert (default_data_dir(), cache_dir()) == (tmp_path / "data", tmp_path / "cache")
    monkeypatch.delenv("ROLLSTREAM_BROKER_DIR")
    monkeypatch.delenv("ROLLSTREAM_CACHE_DIR")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    assert default_data_dir() == tmp_path / "share" / "rollstream" / "broker" or sys.platform != "linux"
