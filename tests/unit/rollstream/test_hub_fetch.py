"""`rollstream environment fetch` against a server that speaks the Hub's API, honest and not."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from typer.testing import CliRunner

from environments.workplace_assistant.databases import Base
from environments.workplace_assistant.environment import EXAMPLE
from rollstream.cli import app

pytest.importorskip("huggingface_hub")

REPO = "someone/office"
SHA = "0123456789abcdef0123456789abcdef01234567"
NAMES = sorted(path.name for path in EXAMPLE.iterdir())


@dataclass
class Hub:
    """A data set on a server. `files` by path; `lfs` are paths kept as large files; the rest is how it misbehaves."""

    files: dict[str, bytes] = field(default_factory=lambda: {f"csv_data/{n}": (EXAMPLE / n).read_bytes() for n in NAMES})
    lfs: frozenset[str] = frozenset({"csv_data/emails.csv"})
    announced: dict[str, Any] = field(default_factory=dict)  # of a file's entry in the listing, by path
    listed: list[dict[str, Any]] = field(default_factory=list)  # further entries
    sent: dict[str, bytes] = field(default_factory=dict)  # content that differs from what is announced
    failures: dict[str, list[int]] = field(default_factory=dict)  # statuses to answer first, by path
    status: int = 200  # of the data set
    error_code: str = ""
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""

    def tree(self) -> list[dict[str, Any]]:
        return [*(self._entry(path, data) for path, data in self.files.items()), *self.listed]

    def _entry(self, path: str, data: bytes) -> dict[str, Any]:
        git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        entry: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": git}
        if path in self.lfs:
            entry |= {"oid": "0" * 40, "lfs": {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}}
        return entry | self.announced.get(path, {})


class Handler(BaseHTTPRequestHandler):
    hub: Hub

    def do_GET(self) -> None:
        path, hub = unquote(self.path.partition("?")[0]), self.hub
        hub.asked.append((path, self.headers.get("Authorization")))
        if hub.status != 200:
            self.answer(hub.status, b"{}", {"X-Error-Code": hub.error_code})
        elif path == f"/api/datasets/{REPO}/revision/main":
            self.answer(200, json.dumps({"id": REPO, "sha": SHA}).encode())
        elif path == f"/api/datasets/{REPO}/tree/{SHA}":
            self.answer(200, json.dumps(hub.tree()).encode())
        else:
            self.file(path.removeprefix(f"/datasets/{REPO}/resolve/{SHA}/"))

    def file(self, path: str) -> None:
        failures = self.hub.failures.get(path)
        if failures:
            self.answer(failures.pop(0), b"")
        elif path in self.hub.files:
            self.answer(200, self.hub.sent.get(path, self.hub.files[path]))
        else:
            self.answer(404, b"")

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[Hub]:
    served = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": served}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_port}"
    yield served
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings or tokens of this machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")


def run(hub: Hub, tmp_path: Path, *more: str) -> tuple[int, str, str]:
    where = ["--set", f"environments.data_dir={tmp_path / 'data'}"]
    command = ["environment", "fetch", "workplace_assistant", "--repo", REPO, "--endpoint", hub.url, *where, *more]
    result = CliRunner().invoke(app, command)
    return result.exit_code, result.stdout, result.stderr


def refused(hub: Hub, tmp_path: Path) -> str:
    """The message of a fetch that fails, having left nothing behind."""
    code, _, err = run(hub, tmp_path)
    assert code == 1, err
    assert not (tmp_path / "data").exists() or list((tmp_path / "data").iterdir()) == []
    return err


def test_the_files_lie_where_workers_look_and_can_be_used(hub, tmp_path):
    hub.files["data/train.jsonl"] = b"{}\n"
    code, out, err = run(hub, tmp_path)
    folder = tmp_path / "data" / "workplace_assistant"
    assert (code, sorted(p.name for p in folder.iterdir())) == (0, sorted([*NAMES, "train.jsonl"])), err
    assert sorted(out.split()) == sorted(str(p) for p in folder.iterdir())
    assert Base.load(folder).digest == Base.load(EXAMPLE).digest
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]


def test_files_that_are_there_are_replaced_and_others_stay(hub, tmp_path):
    folder = tmp_path / "elsewhere"
    shutil.copytree(EXAMPLE, folder)
    (folder / "mine.txt").write_text("mine")
    (folder / "emails.csv").write_text("old")
    assert run(hub, tmp_path, "--to", str(folder))[0] == 0
    assert (folder / "emails.csv").read_bytes() == (EXAMPLE / "emails.csv").read_bytes()
    assert (folder / "mine.txt").read_text() == "mine"


def test_no_token_is_sent_in_the_clear_to_a_server_that_was_named(hub, tmp_path):
    assert run(hub, tmp_path)[0] == 0
    assert {token for _, token in hub.asked} == {None}


def test_a_server_that_fails_for_a_moment_is_asked_again_and_no_more_than_three_times(hub, tmp_path):
    hub.failures["csv_data/emails.csv"] = [500, 503]
    assert run(hub, tmp_path)[0] == 0
    shutil.rmtree(tmp_path / "data")
    hub.failures["csv_data/emails.csv"] = [500] * 9
    assert "someone/office cannot be had" in refused(hub, tmp_path)
    assert len(hub.failures["csv_data/emails.csv"]) == 6


def test_a_data_set_without_the_files_is_told_with_what_it_has(hub, tmp_path):
    hub.files = {"train.jsonl": b"{}", "README.md": b""}
    err = refused(hub, tmp_path)
    assert "has no emails.csv, calendar_events.csv" in err
    assert "it has train.jsonl, README.md" in err
    assert "--repo" in err


@pytest.mark.parametrize(
    "path", ["../emails.csv", "/etc/emails.csv", "a/../../emails.csv", "..\\emails.csv", "emails.csv/", "x\\..\\emails.csv"]
)
def test_paths_that_lead_outside_are_no_files_of_the_data_set(hub, tmp_path, path):
    data = hub.files.pop("csv_data/emails.csv")
    hub.listed = [{"type": "file", "path": path, "size": len(data), "oid": "0" * 40}]
    assert "has no emails.csv" in refused(hub, tmp_path)
    assert not any("emails.csv" in asked for asked, _ in hub.asked)


def test_of_files_with_one_name_the_highest_is_taken(hub, tmp_path):
    hub.files |= {"a/b/emails.csv": b"deeper", "z/raw/emails.csv": b"deeper too"}
    assert run(hub, tmp_path)[0] == 0
    assert Base.load(tmp_path / "data" / "workplace_assistant").digest == Base.load(EXAMPLE).digest


@pytest.mark.parametrize(
    ("announced", "sent", "message"),
    [
        ({"size": 2 << 30}, None, "more than the"),
        ({"size": -5}, None, "allowed"),
        ({}, b"x" * 5_000_000, "bytes and has more"),
        ({}, b"x", "bytes and has 1"),
        ({}, "changed", "checksum"),
    ],
)
@pytest.mark.parametrize("path", ["csv_data/emails.csv", "csv_data/project_tasks.csv"])
def test_files_that_are_not_what_was_announced_are_refused(hub, tmp_path, path, announced, sent, message):
    hub.announced = {path: announced}
    if sent == "changed":
        sent = hub.files[path].swapcase()
    hub.sent = {path: sent} if sent else {}
    assert message in refused(hub, tmp_path)


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (404, "RepoNotFound", "does not exist, or is private"),
        (401, "", "does not exist, or is private"),
        (403, "GatedRepo", "asks for an agreement"),
        (404, "RevisionNotFound", "has no revision main"),
        (418, "", "cannot be had"),
    ],
)
def test_what_the_hub_refuses_is_one_line_that_says_what_to_do(hub, tmp_path, status, code, message):
    hub.status, hub.error_code = status, code
    err = refused(hub, tmp_path)
    assert message in err
    assert err.count("\n") == 1


def test_a_server_that_is_not_there(hub, tmp_path):
    code, _, err = run(hub, tmp_path, "--endpoint", "http://127.0.0.1:1")
    assert (code, err.count("\n")) == (1, 1)
    assert "cannot be had" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mcqa"], "needs no data from the Hub"),
        (["workplace_asistant"], "did you mean 'workplace_assistant'"),
    ],
)
def test_environments_without_data_are_told(arguments, message):
    result = CliRunner().invoke(app, ["environment", "fetch", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_name_that_is_no_data_set(hub, tmp_path):
    code, _, err = run(hub, tmp_path, "--repo", "../../etc")
    assert code == 1
    assert "is no name of a data set" in err
