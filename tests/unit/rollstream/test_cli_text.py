import json
import sys
from datetime import datetime
from pathlib import Path
from subprocess import run

import pytest
import typer
from typer.testing import CliRunner

import rollstream.cli
from rollstream.cli import COMMANDS, app
from rollstream.cli.common import Sections, UsageError, flowing
from rollstream.cli.tail import answer, one_line, parse_start
from rollstream.scored import ScoredRollout
from schemas.identity import Place


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("ROLLSTREAM_CONFIG", "ROLLSTREAM_MODEL__API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROLLSTREAM_BROKER_DIR", str(tmp_path / "no-broker"))


def cli(*args):
    return CliRunner().invoke(app, list(args))


def rollout(environment="mcqa", text="B", reward=1.0):
    line = json.dumps(
        {"response": {"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]}}
    )
    return ScoredRollout("r", "0-1", environment, 0, 1, 0, reward, Place("t", 0, 0), 1_700_000_000_000, line.encode())


def test_a_rollout_is_one_line_whatever_it_says():
    shown = one_line(rollout(environment="[bold]x\x1b[31m", text="a\nb\x07" + "c" * 500, reward=0.25))
    assert "[bold]x\\x1b[31m  r/0-1  0.25  a b\\x07ccc" in shown
    assert "\n" not in shown
    assert "\x1b" not in shown
    assert len(shown) < 160


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ({}, ""),
        ({"output": "garbage"}, ""),
        ({"output": [{"type": "message", "role": "assistant", "content": "plain"}, {"type": "function_call"}]}, "plain"),
        ({"output": [{"role": "user", "content": "question"}]}, ""),
        ({"output": [{"content": [{"type": "output_text", "text": 3}, {"type": "refusal"}]}]}, "3"),
    ],
)
def test_the_answer_is_the_last_text_of_the_model(response, expected):
    assert answer(response) == expected


def test_where_to_begin():
    assert parse_start("earliest") == "earliest"
    assert parse_start("2026-08-30T12:00:00+00:00") == datetime.fromisoformat("2026-08-30T12:00:00+00:00")
    local = parse_start("2026-08-30T12:00")
    assert isinstance(local, datetime)
    assert local.tzinfo is not None
    with pytest.raises(UsageError, match="--from yesterday: write earliest, latest or a time"):
        parse_start("yesterday")


def test_help_flows_and_examples_keep_their_lines():
    assert flowing("A line\nand more.\n\n  x\n  y\n") == "A line and more.\n\n\b\n  x\n  y"


def test_help_names_every_command():
    shown = cli("--help")
    assert shown.exit_code == 0
    for name in ("produce", "tail", "status", "broker", "environments", "config", "version"):
        assert name in shown.output
        assert cli(name, "--help").exit_code == 0


def test_what_is_listed_without_importing_a_command_is_what_it_says():
    group = typer.main.get_command(app)
    files = {p.stem for p in Path(rollstream.cli.__file__).parent.glob("*.py") if "\ndef register(" in p.read_text("utf-8")}
    assert {each.name for each in COMMANDS} == files
    assert Sections.rows(group, None) == [(each.panel, each.name, each.says) for each in COMMANDS]
    assert [name for name, found in group.commands.items() if found.name == name] == [each.name for each in COMMANDS]
    assert group.commands.get("no-such") is None


def test_help_imports_no_command():
    code = (
        "import sys; from rollstream.cli import COMMANDS, app\n"
        "from typer.testing import CliRunner; assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        "print([c.name for c in COMMANDS if f'rollstream.cli.{c.name}' in sys.modules])"
    )
    assert run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_help_imports_no_client():
    code = (
        "import sys; from rollstream.cli import app\n"
        "from typer.testing import CliRunner; assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        "print([m for m in ('aiokafka', 'openai', 'pydantic', 'faststream', 'fastavro', 'yaml', 'rich') if m in sys.modules])"
    )
    assert run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_config_shows_values_with_their_origin_and_no_secret(monkeypatch, tmp_path):
    monkeypatch.setenv("ROLLSTREAM_MODEL__API_KEY", "hunter2")
    (tmp_path / "rollstream.toml").write_text("[model]\nurl = 'https://me:hunter2@host/v1'\n")
    shown = cli("config", "--set", "agent.in_flight=5", "--prefix", "mine")
    assert shown.exit_code == 0
    assert "hunter2" not in shown.output
    lines = {line.split()[0]: line.split()[1:] for line in shown.output.splitlines()}
    assert lines["agent.in_flight"] == ["5", "flag"]
    assert lines["topics.prefix"] == ["mine", "flag"]
    assert lines["model.api_key"] == ["********", "environment", "ROLLSTREAM_MODEL__API_KEY"]
    assert lines["model.url"] == ["https://********@host/v1", "file", "rollstream.toml"]
    values = json.loads(cli("config", "--json").output)
    assert values["model.api_key"] == {"value": "********", "origin": "environment ROLLSTREAM_MODEL__API_KEY"}
    assert values["agent.in_flight"] == {"value": 2048, "origin": "default"}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("config", "--set", "agent.in_fligth=5"), "agent.in_fligth: unknown setting; did you mean agent.in_flight? (flag)"),
        (("config", "--set", "agent"), "--set agent: write KEY=VALUE"),
        (("config", "--config", "nowhere.toml"), "nowhere.toml: there is no such file"),
        (("status",), "no broker: name one with --bootstrap-servers"),
        (("status", "-b", "nonsense"), "kafka: bootstrap_servers has 'nonsense'; write host:port"),
        (("produce", "rows.jsonl", "--run", "../x"), "--run ../x: a letter or digit"),
        (("produce", "nowhere.jsonl", "-b", "h:1"), "nowhere.jsonl: No such file or directory"),
        (("tail", "--from", "now"), "--from now: write earliest"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(args, message):
    shown = cli(*args)
    assert shown.exit_code == 2
    assert shown.stderr.startswith(f"rollstream: {message}")
    assert shown.stderr.count("\n") == 1
    assert shown.stdout == ""


def test_environments_are_one_line_each():
    shown = cli("environments")
    assert shown.exit_code == 0
    assert any(line.startswith("mcqa ") for line in shown.output.splitlines())
    found = {e["name"]: e for e in json.loads(cli("environments", "--json").output)}
    assert set(found["mcqa"]) == {"name", "description", "domain", "package", "needs", "missing", "variants"}
    assert len(found) == len(shown.output.splitlines())


def test_the_version_is_that_of_the_package():
    from importlib import metadata

    assert cli("--version").output == f"rollstream {metadata.version('rollstream')}\n"
    assert json.loads(cli("version", "--json").output)["rollstream"] == metadata.version("rollstream")


def test_a_broken_environment_is_said_beside_the_others(monkeypatch):
    from environments import discovery

    entries, _ = discovery.discover()
    monkeypatch.setattr(discovery, "discover", lambda: (entries, [discovery.Broken("evil\x1b[2J", "pkg", "it raised")]))
    shown = cli("environments")
    assert shown.exit_code == 0
    assert shown.stderr == "not usable: evil\\x1b[2J: it raised\n"
    assert len(shown.stdout.splitlines()) == len(entries)
