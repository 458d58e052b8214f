"""Fetching Kafka's jars over HTTP: once, whole, again when damaged, and never with a Maven or Java of the machine.

A loopback server hands out what this machine's own cache holds, as a Maven mirror would.
"""

import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading

import pytest

from rollstream.broker import jars
from rollstream.broker.errors import BrokerError

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


class Mirror(http.server.ThreadingHTTPServer):
    """Serves files; `damage` maps a file name's ending to how many more times it arrives cut short."""

    def __init__(self, root):
        super().__init__(("127.0.0.1", 0), functools.partial(Handler, directory=str(root)))
        self.served: list[str] = []
        self.damage: dict[str, int] = {}

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.served.append(self.path)
        for ending, left in self.server.damage.items():
            if self.path.endswith(ending) and left:
                self.server.damage[ending] = left - 1
                body = b"PK half a jar"
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                return
        super().do_GET()


@pytest.fixture(scope="module")
def whole_cache():
    jars.kafka_jars()
    return jars._repository()


@pytest.fixture
def mirror(whole_cache, tmp_path, monkeypatch):
    """A mirror, and an empty cache that is filled from it."""
    with Mirror(whole_cache) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("ROLLSTREAM_CACHE_DIR", str(tmp_path / "cache"))
        monkeypatch.setenv("ROLLSTREAM_MAVEN_REPOSITORY", server.url + "/")
        yield server
        server.shutdown()


@pytest.fixture
def filled(mirror, whole_cache):
    """The class path of a cache that was filled before, from a mirror that nobody has asked yet."""
    shutil.copytree(whole_cache.parent, jars._home())
    return jars.kafka_jars(pytest.fail)


def test_a_first_download_is_reported_and_a_second_start_asks_nobody(mirror):
    told = []
    first = jars.kafka_jars(told.append)
    assert len(first) == 46
    assert told[0] == "downloading Apache Kafka 4.2.0 (45 MB, once)"
    assert any("of 46 jars" in line for line in told)
    mirror.served.clear()
    assert jars.kafka_jars(pytest.fail) == first
    assert mirror.served == []


def test_a_warm_start_does_not_import_the_resolver(mirror, filled):
    code = "import sys; from rollstream.broker.jars import kafka_jars; kafka_jars(); print([m for m in sys.modules if m in ('jgo', 'requests')])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert output.stdout.strip() == "[]"


def test_no_maven_and_no_java_of_the_machine_is_run(mirror, tmp_path):
    traps = tmp_path / "bin"
    traps.mkdir()
    for name in ("mvn", "java"):
        (traps / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/called\nexit 1\n")
        (traps / name).chmod(0o755)
    code = "from rollstream.broker.jars import kafka_jars; print(len(kafka_jars(lambda _: None)))"
    environment = {**os.environ, "PATH": str(traps), "JAVA_HOME": str(tmp_path)}
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert output.stdout.strip() == "46"
    assert not (tmp_path / "called").exists()


def test_a_jar_that_arrives_damaged_is_fetched_again(mirror):
    mirror.damage = {"kafka-clients-4.2.0.jar": 1, "kafka_2.13-4.2.0.pom": 1}
    told = []
    found = jars.kafka_jars(told.append)
    assert all(jars._whole(jar) for jar in found)
    assert any("interrupted" in line for line in told)


def test_a_source_of_damaged_files_is_given_up_with_what_to_do(mirror):
    mirror.damage = {"kafka-clients-4.2.0.jar": 99}
    with pytest.raises(
        BrokerError,
        match=r"could not be downloaded \(3 tries\): damaged on arrival: kafka-clients.*ROLLSTREAM_MAVEN_REPOSITORY",
    ):
        jars.kafka_jars(lambda _: None)


def test_a_mirror_without_kafka_is_given_up_with_what_to_do(mirror, monkeypatch):
    monkeypatch.setenv("ROLLSTREAM_MAVEN_REPOSITORY", mirror.url + "/nothing-here")
    with pytest.raises(BrokerError, match="ROLLSTREAM_KAFKA_HOME"):
        jars.kafka_jars(lambda _: None)


def test_a_download_cut_off_by_a_kill_is_completed(mirror, filled):
    whole = filled
    jars._listing().unlink()  # written last
    whole[0].write_bytes(whole[0].read_bytes()[:5000])
    mirror.served.clear()
    assert jars.kafka_jars(lambda _: None) == whole
    assert [path for path in mirror.served if path.endswith(".jar")] == ["/" + str(whole[0].relative_to(jars._repository()))]


@pytest.mark.parametrize("damage", ["gone", "shorter", "listing"])
def test_a_damaged_cache_is_noticed_and_repaired(mirror, filled, damage):
    whole = filled
    if damage == "gone":
        whole[3].unlink()
    elif damage == "shorter":
        whole[3].write_bytes(b"PK")
    else:
        jars._listing().write_text('{"coordinates": [')
    assert jars.kafka_jars(lambda _: None) == whole
    assert all(jars._whole(jar) for jar in whole)


def test_bytes_changed_in_place_are_found_when_asked_for(mirror, filled):
    whole = filled
    jar = max(whole, key=lambda path: path.stat().st_size)
    with jar.open("r+b") as file:
        file.seek(jar.stat().st_size // 2)
        file.write(b"\x00" * 64)
    assert jars.kafka_jars(lambda _: None) == whole  # the size is right: a start does not read 45 MB
    assert jars.discard_damaged() == [jar]
    assert jars.kafka_jars(lambda _: None) == whole
    assert jars._whole(jar)


def test_another_version_wanted_is_another_download(mirror, filled):
    listing = json.loads(jars._listing().read_text())
    listing["coordinates"][0] = "org.apache.kafka:kafka_2.13:4.1.0"
    jars._listing().write_text(json.dumps(listing))
    assert jars._remembered() is None


async def test_a_broker_whose_jars_were_changed_in_place_repairs_them_and_starts(mirror, filled, tmp_path):
    from rollstream.broker import LocalBroker
    from rollstream.broker.exercise import exercise

    jar = next(path for path in filled if path.name.startswith("kafka-clients-"))
    size = jar.stat().st_size
    jar.write_bytes(b"\x00" * size)
    async with LocalBroker(tmp_path / "data", archive=None, report=lambda _: None) as connection:
        assert await exercise(connection) >= 199
    assert jars._whole(jar)
