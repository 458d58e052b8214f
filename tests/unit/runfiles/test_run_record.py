from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from rollstream.runfiles.run_record import RunRecord, RunRecordError, code_version, config_hash, read_run_record
from services.runtime.record import TopicPartition
from services.sink.stopped import SinkStoppedError

RECORD = RunRecord(
    run_id="r",
    config_hash="ab",
    code_version="0.1.0",
    started="2026-08-01T10:00:00+00:00",
    model={"url": "https://me:pw@host/v1", "name": "m", "api_key": SecretStr("sk-secret")},
    arguments={
        "input": Path("rows.jsonl"),
        "repeats": 2,
        "api_key": "sk-secret",
        "nested": [{"token": "sk-secret"}, "http://u:sk-secret@h"],
    },
    rollouts=20,
    starting_offsets={TopicPartition("prompts", 10): 7, TopicPartition("prompts", 2): 0},
)


def test_round_trip_without_secrets(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "out_run.json"
    RECORD.write(path)
    assert b"sk-secret" not in path.read_bytes()
    assert b":pw@" not in path.read_bytes()
    found = read_run_record(path)
    assert found is not None
    assert (found.run_id, found.starting_offsets, found.rollouts, found.ended) == ("r", RECORD.starting_offsets, 20, None)
    assert found.arguments["input"] == "rows.jsonl"
    assert found.model["name"] == "m"
    found.finished({"scored": 19, "failed": 1}).write(path)
    ended = read_run_record(path)
    assert ended is not None
    assert ended.outcomes == {"scored": 19, "failed": 1}
    assert ended.ended is not None
    assert [p.name for p in path.parent.iterdir()] == ["out_run.json"]


def test_a_reader_of_another_version(tmp_path: Path) -> None:
    path = tmp_path / "out_run.json"
    assert read_run_record(path) is None
    RECORD.write(path)
    value = json.loads(path.read_bytes())
    path.write_text(json.dumps({**value, "added_later": 1}))
    assert read_run_record(path) is not None
    for bad in ("{", "[]", json.dumps({**value, "format": 2}), json.dumps({"format": 1})):
        path.write_text(bad)
        with pytest.raises(RunRecordError, match=r"out_run\.json"):
            read_run_record(path)


def test_hash_is_of_the_configuration_and_not_of_its_secrets_or_order() -> None:
    one = config_hash({"a": 1, "model": {"url": "u", "api_key": "x"}})
    assert one == config_hash({"model": {"api_key": "y", "url": "u"}, "a": 1})
    assert one != config_hash({"a": 2, "model": {"url": "u", "api_key": "x"}})
    program = "from rollstream.runfiles.run_record import config_hash; print(config_hash({'a': 1, 'model': {'url': 'u', 'api_key': 'x'}}))"
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30).stdout.strip()
        == one
    )


def test_version_is_that_of_the_package() -> None:
    assert code_version().count(".") == 2


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SinkStoppedError, match="cannot write"):
        RECORD.write(tmp_path / "file" / "out_run.json")
