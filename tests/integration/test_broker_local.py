"""The local broker as a process: start, stop, crash, one per directory, found by others, gone with its starter."""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import psutil
import pytest

from rollstream import broker as brokers
from rollstream.broker import BrokerBusyError, BrokerError, LocalBroker, archive, local, state
from rollstream.broker.exercise import exercise
from rollstream.broker.jars import kafka_jars
from rollstream.broker.java import find_java
from rollstream.broker.paths import Layout
from rollstream.broker.properties import Ports

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]  # the first start on a machine downloads Kafka

RUNNER = """
import asyncio, signal, sys
from pathlib import Path
from rollstream.broker import LocalBroker
async def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    broker = LocalBroker(Path(sys.argv[1]))
    await broker.start()
    print(broker.info.pid, broker.info.bootstrap_servers, flush=True)
    await asyncio.sleep(300)
asyncio.run(main())
"""


async def gone(pid: int, timeout_s: float = 10) -> bool:
    async with asyncio.timeout(timeout_s):
        while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:  # noqa: ASYNC110  the kernel sends no event
            await asyncio.sleep(0.02)
    return True


async def runner(data_dir: Path) -> tuple[asyncio.subprocess.Process, int]:
    """Another process that runs a broker, and the broker's own process id."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", RUNNER, str(data_dir), stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    pid, _ = (await asyncio.wait_for(process.stdout.readline(), 120)).split()
    return process, int(pid)


async def test_a_started_broker_serves_transactions_groups_and_commits(tmp_path):
    async with LocalBroker(tmp_path) as connection:
        assert await exercise(connection) >= 199


async def test_a_second_broker_on_the_same_directory_is_refused_and_names_the_first(tmp_path):
    first = LocalBroker(tmp_path)
    await first.start()
    try:
        with pytest.raises(BrokerBusyError, match=rf"process {first.info.pid} at {first.info.bootstrap_servers}"):
            await LocalBroker(tmp_path).start()
        with pytest.raises(BrokerError, match="was started already"):
            await first.start()
        assert first.running
        found = brokers.find_running(tmp_path)
        assert found is not None
        assert (found.pid, found.connection, found.detached) == (first.info.pid, first.connection, False)
    finally:
        await first.stop()
    assert brokers.find_running(tmp_path) is None


@pytest.mark.chaos
async def test_a_killed_runner_leaves_no_broker_and_its_directory_can_be_used_at_once(tmp_path):
    process, pid = await runner(tmp_path)
    guard = psutil.Process(pid).ppid()
    process.kill()
    await process.wait()
    assert await gone(pid)
    assert await gone(guard)
    assert brokers.find_running(tmp_path) is None
    async with LocalBroker(tmp_path) as connection:
        assert await exercise(connection) >= 199


@pytest.mark.chaos
async def test_a_killed_guard_takes_the_broker_with_it(tmp_path):
    process, pid = await runner(tmp_path)
    try:
        psutil.Process(pid).parent().kill()
        assert await gone(pid)
    finally:
        process.kill()
        await process.wait()


async def test_a_terminals_interrupt_does_not_reach_the_broker(tmp_path):
    process, pid = await runner(tmp_path)
    try:
        os.killpg(process.pid, signal.SIGINT)
        assert os.getpgid(pid) != process.pid
        connection = brokers.find_running(tmp_path).connection
        assert await exercise(connection) >= 199
        assert process.returncode is None
    finally:
        process.kill()
        await process.wait()
    assert await gone(pid)


async def test_a_detached_broker_outlives_its_starter_and_is_stopped_from_elsewhere(tmp_path):
    code = "import sys, pathlib; from rollstream.broker import start_detached; print(start_detached(pathlib.Path(sys.argv[1])).pid)"
    starter = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(tmp_path), stdout=asyncio.subprocess.PIPE)
    output, _ = await asyncio.wait_for(starter.communicate(), 120)
    info = brokers.status(tmp_path)
    try:
        assert info.pid == int(output)
        assert info.detached
        with pytest.raises(BrokerBusyError, match=f"process {info.pid}"):
            await LocalBroker(tmp_path).start()
        assert await exercise(info.connection) >= 199
    finally:
        stopped = await asyncio.to_thread(brokers.stop, tmp_path)
    assert stopped == info
    assert not psutil.pid_exists(info.pid) or psutil.Process(info.pid).status() == psutil.STATUS_ZOMBIE
    assert brokers.status(tmp_path) is None
    assert brokers.stop(tmp_path) is None
    assert not Layout(tmp_path).state.exists()


async def test_a_note_left_by_a_crash_is_not_taken_for_a_broker(tmp_path, own_broker):
    note = Layout(own_broker.layout.root).state.read_bytes()
    await own_broker.kill()
    Layout(own_broker.layout.root).state.write_bytes(note)  # as a runner that was killed too leaves it
    assert brokers.find_running(own_broker.layout.root) is None
    assert brokers.status(own_broker.layout.root) is None
    assert not Layout(own_broker.layout.root).state.exists()


async def test_ports_taken_meanwhile_are_replaced(tmp_path, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        free = local._free_ports()
        state.save_ports(Layout(tmp_path), Ports(free.broker, port))
        monkeypatch.setattr(local, "_free", lambda _port: True)  # it was free when looked at, and taken before Java came
        async with LocalBroker(tmp_path) as connection:
            assert await exercise(connection) >= 199
    assert state.saved_ports(Layout(tmp_path)) != Ports(free.broker, port)


async def test_a_directory_half_formatted_is_completed(tmp_path):
    layout = Layout(tmp_path)
    layout.log_dir.mkdir()
    (layout.log_dir / "bootstrap.checkpoint").write_bytes(b"cut sho")
    async with LocalBroker(tmp_path) as connection:
        assert await exercise(connection) >= 199


async def test_a_broker_that_does_not_start_shows_the_end_of_its_log(tmp_path):
    broker = LocalBroker(tmp_path, jvm_options=("-XX:NoSuchOption",))
    with pytest.raises(BrokerError, match=r"(?s)ended while it started.*broker\.log.*Unrecognized VM option 'NoSuchOption'"):
        await broker.start()
    assert not broker.running
    with pytest.raises(BrokerError, match="not running"):
        _ = broker.info
    async with LocalBroker(tmp_path):  # nothing is left locked
        pass


async def test_a_damaged_archive_costs_speed_only(tmp_path, monkeypatch):
    damaged = tmp_path / "damaged.aot"
    damaged.write_bytes(b"\x00" * 4096)
    monkeypatch.setattr(archive, "archive_path", lambda *_: damaged)
    async with LocalBroker(tmp_path / "data") as connection:
        assert await exercise(connection) >= 199


def test_the_archive_belongs_to_one_java_one_set_of_options_and_jars():
    java, jars = find_java(), kafka_jars()
    first = archive.archive_path(java, jars, "512m")
    assert first == archive.archive_path(java, jars, "512m")
    assert first != archive.archive_path(java, jars[1:], "512m")
    assert first != archive.archive_path(java, jars, "256m")


async def test_a_broker_can_be_named_by_an_unpacked_kafka(tmp_path, monkeypatch):
    libs = tmp_path / "kafka" / "libs"
    libs.mkdir(parents=True)
    for jar in kafka_jars():
        (libs / jar.name).symlink_to(jar)
    monkeypatch.setenv("ROLLSTREAM_KAFKA_HOME", str(tmp_path / "kafka"))
    assert all(jar.parent == libs for jar in kafka_jars())
    async with LocalBroker(tmp_path / "data", archive=None) as connection:
        assert await exercise(connection) >= 199
