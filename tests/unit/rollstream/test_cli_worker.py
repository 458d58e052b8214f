"""What `rollstream worker` refuses before it asks a broker."""

import pytest
from typer.testing import CliRunner

from rollstream.cli import app


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROLLSTREAM_BROKER__DATA_DIR", str(tmp_path / "no-broker"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sink"], "worker sink: say where lines go"),
        (["sink", "--output", "a.jsonl"], "a.jsonl holds one run; name it with --run"),
        (["agent"], "worker agent: name the policy with --model URL/NAME"),
        (["agent", "--model", "nonsense"], "does not name a model"),
        (["tool", "--run", "r"], "worker tool: --output and --run belong to the sink"),
        (["verifier", "--output", "out/"], "worker verifier: --output and --run belong to the sink"),
        (["tool"], "no broker: name one with --bootstrap-servers"),
    ],
)
def test_a_worker_that_cannot_work_says_so_at_once(arguments, said):
    result = CliRunner().invoke(app, ["worker", *arguments])
    assert result.exit_code == 2
    assert said in result.output
    assert result.output.count("\n") == 1
