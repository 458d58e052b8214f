"""The reward profile: join, files, console summary (platform.md B13)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rollstream.cli import app
from rollstream.runfiles.profile import ProfileError, profile
from services.sink.paths import RunPaths

REF = {"agent_ref": {"type": "responses_api_agents", "name": "a"}}


def row(task: int, rollout: int, **more: Any) -> dict[str, Any]:
    params = {"input": f"question {task}"}
    return {"responses_create_params": params, **REF, "_ng_task_index": task, "_ng_rollout_index": rollout, **more}


def result(task: int, rollout: int, reward: float, **more: Any) -> dict[str, Any]:
    response = {"usage": {"output_tokens": 10 * task + rollout}, "output": []}
    return row(task, rollout, response=response, reward=reward, **more)


def write(path: Path, *lines: Any, tail: bytes = b"") -> None:
    path.write_bytes(b"".join(json.dumps(x).encode() + b"\n" for x in lines) + tail)


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return RunPaths.of(tmp_path / "rollouts.jsonl")


def cli(*args: Any) -> Any:
    return CliRunner().invoke(app, ["profile", *map(str, args)])


def test_b13_golden_files_and_summary(paths: RunPaths) -> None:
    """B10's golden rewards by task: (1,1), (0,1), (0)."""
    write(paths.materialized, *(row(t, i, answer="é") for t in range(4) for i in range(2)))
    rewards = [(2, 0, 0), (1, 1, 1), (0, 0, 1), (1, 0, 0), (0, 1, 1)]
    write(paths.results, *(result(*r) for r in rewards))
    shown = cli("--rollouts", paths.results, "--allow-partial-rollouts")
    assert shown.exit_code == 0, shown.output
    assert dict(line.split()[:2] for line in shown.stdout.splitlines()[:9]) == {
        "expected_rollout_rows": "8",
        "completed_rollout_rows": "5",
        "missing_rollout_rows": "3",
        "extra_rollout_rows": "0",
        "reward_profile_completion_pct": "62.5",
        "total_input_rows": "4",
        "complete_input_rows": "2",
        "partial_input_rows": "1",
        "missing_input_rows": "1",
    }
    text = paths.reward_profile.read_text("utf-8")
    assert "é" in text
    lines = [json.loads(x) for x in text.splitlines()]
    assert [x["_ng_task_index"] for x in lines] == [0, 1, 2]
    assert [x["mean/reward"] for x in lines] == [1.0, 0.5, 0.0]
    assert [x["std/reward"] for x in lines] == [0.0, pytest.approx(0.7071067811865476, rel=1e-15), 0.0]
    assert lines[1]["sample"] == {"responses_create_params": {"input": "question 1"}, **REF, "answer": "é"}
    assert [x["expected_num_rollouts"] for x in lines] == [2, 2, 2]
    assert [x["missing_num_rollouts"] for x in lines] == [0, 0, 1]
    assert lines[1]["rollout_infos"][1] == {
        "rollout_id": "1:1",
        "_ng_task_index": 1,
        "_ng_rollout_index": 1,
        "reward": 1.0,
        "output_tokens": 11,
    }
    (agent,) = json.loads(paths.agent_metrics.read_bytes())
    assert agent["agent_ref"] == {"name": "a"}
    assert (agent["mean/reward"], agent["median/reward"]) == (0.6, 1.0)
    assert agent["std/reward"] == pytest.approx(0.5477225575051662, rel=1e-15)


def test_b13_a_complete_run_needs_no_flag_and_inputs_may_lie_elsewhere(paths: RunPaths, tmp_path: Path) -> None:
    write(tmp_path / "rows.jsonl", row(0, 0))
    write(paths.results, result(0, 0, 1))
    shown = cli("--rollouts", paths.results, "--inputs", tmp_path / "rows.jsonl")
    assert shown.exit_code == 0, shown.output
    assert "reward_profile_completion_pct  100\n" in shown.stdout


@pytest.mark.parametrize(
    ("rows", "results", "said"),
    [
        ([row(0, 0), row(0, 0)], [], "materialized_inputs.jsonl:2: rollout 0:0 occurs twice, first in line 1"),
        ([row(0, 0)], [result(0, 0, 1), result(0, 0, 0)], "rollouts.jsonl:2: rollout 0:0 occurs twice, first in line 1"),
        ([row(0, 0)], [result(0, 1, 1)], "rollouts.jsonl:1: rollout 0:1 has no row in"),
        ([row(0, 0), row(0, 1), row(7, 2)], [result(0, 0, 1)], "2 of 3 rollouts in"),
        ([row(0, 0)], [{"reward": 1}], "rollouts.jsonl:1: the line has no _ng_task_index"),
    ],
)
def test_b13_errors(paths: RunPaths, rows: list[Any], results: list[Any], said: str) -> None:
    write(paths.materialized, *rows)
    write(paths.results, *results)
    with pytest.raises(ProfileError) as error:
        profile(paths.materialized, paths.results)
    assert said in str(error.value)
    shown = cli("--rollouts", paths.results)
    assert (shown.exit_code, shown.stderr.count("\n")) == (2, 1)
    assert not paths.reward_profile.exists()


def test_a_torn_last_line_is_said_and_left_out(paths: RunPaths) -> None:
    write(paths.materialized, row(0, 0), row(0, 1))
    write(paths.results, result(0, 0, 1), tail=b'{"reward": 1, "_ng_ta')
    shown = cli("--rollouts", paths.results, "--allow-partial-rollouts")
    assert shown.exit_code == 0
    assert "rollouts.jsonl:2: the last line is cut off" in shown.stderr
    assert "completed_rollout_rows         1" in shown.stdout


def test_nothing_was_asked_for(paths: RunPaths) -> None:
    write(paths.materialized)
    write(paths.results)
    found = profile(paths.materialized, paths.results)
    assert found.summary.reward_profile_completion_pct == 100
    assert (found.tasks, found.agents) == ((), ())


def test_a_file_that_is_not_there(paths: RunPaths) -> None:
    shown = cli("--rollouts", paths.results)
    assert shown.exit_code == 2
    assert "materialized_inputs.jsonl: No such file or directory" in shown.stderr
