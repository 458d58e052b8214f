"""What a run says of environments that cannot be used and of rows that it refuses, however many there are."""

from importlib import metadata

import pytest
from rich.console import Console
from typer.testing import CliRunner

from environments.extras import OURS, install_command
from rollstream.cli import app
from rollstream.runfiles.problems import RowProblem, refused_by_agent, summarised
from rollstream.runner import local
from rollstream.runner.display import results_table


@pytest.fixture
def without_numpy(monkeypatch):
    version = metadata.version

    def of(name):
        if name == "numpy":
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(metadata, "version", of)


@pytest.mark.usefixtures("without_numpy")
def test_named_environments_that_cannot_be_used_are_said_before_anything_starts(monkeypatch, tmp_path):
    def started(*_):
        pytest.fail("a broker was started")

    monkeypatch.setattr(local, "broker", started)
    output = tmp_path / "out" / "r.jsonl"
    argv = ["run", "--model", "scripted", "-o", str(output)]
    done = CliRunner().invoke(app, [*argv, "-e", "mcqa", "-e", "code_gen", "-e", "math_with_code"])
    assert done.exit_code == 2
    said = done.stderr.removeprefix("rollstream: ").splitlines()
    assert said == [
        f"environment {name!r} cannot be used: it needs numpy>=2.2, not installed here: {install_command(OURS, name)}"
        for name in ("code_gen", "math_with_code")
    ]
    assert not output.parent.exists()


def row(line, message, original=b'{"agent_ref": {"name": "a"}}'):
    return RowProblem("rows.jsonl", line, message, original)


def test_rows_that_are_refused_alike_are_said_once():
    problems = [row(3, "it needs x"), row(4, "not JSON", b"{"), row(5, "it needs x"), row(90, "it needs x"), row(91, "y"), row(92, "y")]  # fmt: skip
    assert summarised(problems) == [
        "rows.jsonl:3: it needs x (and 2 more rows, the last in line 90)",
        "rows.jsonl:4: not JSON",
        "rows.jsonl:91: y (and 1 more row, the last in line 92)",
    ]


def test_refused_rows_are_counted_by_agent():
    texts = [b'{"agent_ref": {"name": "a"}}', b"{", b"[]", b"", b'{"agent_ref": 3}', b'{"agent_ref": {"name": "a"}}']
    assert refused_by_agent(row(1, "bad", text) for text in texts) == {"a": 2, "unknown": 4}


def test_the_table_counts_refused_rows_as_failures():
    scored = {"agent_ref": {"name": "a"}, "agent_metrics": {"mean/reward": 0.5}, "completeness": {"scored": 4, "failed": {"model": 1}}}  # fmt: skip
    console = Console(width=100, record=True)
    console.print(results_table([scored], {"b": "bees"}, {"a": 2, "b": 3}))
    cells = [[c.strip() for c in line.split("│")[1:-1]] for line in console.export_text().splitlines() if "│" in line]
    assert cells == [["a", "7", "0.500", "3"], ["bees", "3", "-", "3"]]
