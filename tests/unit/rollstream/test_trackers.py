"""Metrics to trackers: which are active, what they are sent, and that none can harm a run (platform.md B14)."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rollstream.settings.model import Trackers
from rollstream.trackers import active, export
from rollstream.trackers.child import mlflow_name
from rollstream.trackers.exporting import half_set
from rollstream.trackers.scalars import rollout_texts, scalars

KEY = "k" * 40
WANDB = {"wandb_project": "p", "wandb_name": "night", "wandb_api_key": KEY}
AGENT = {
    "agent_ref": {"name": "mcqa"},
    "agent_metrics": {"mean/reward": 0.5, "pass@1[avg-of-2]/accuracy": 50, "per_sample_aggregate": {"accuracy": [1]}, "x": "y"},
    "key_metrics": {"mean/reward": 0.5},
    "group_level_metrics": [{"mean/reward": 0.25}],
}
SENT = {"mcqa/mean/reward": 0.5, "mcqa/pass@1[avg-of-2]/accuracy": 50.0, "key_metrics/mcqa/mean/reward": 0.5}


def trackers(**given: Any) -> Trackers:
    return Trackers(**given)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    item = {"type": "message", "content": "héllo", "prompt_token_ids": [1], "generation_log_probs": [0.5]}
    line = {
        "reward": 1.0,
        "response": {"output": [item]},
        "ng_trajectory": ["secret"],
        "_ng_token_capture": {},
        "_ng_task_index": 0,
    }
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(line) + "\n")
    return path


def test_b14_all_three_keys_or_none() -> None:
    assert active(trackers()) == []
    assert active(trackers(**WANDB)) == ["wandb"]
    for missing in WANDB:
        rest = {k: v for k, v in WANDB.items() if k != missing}
        assert active(trackers(**rest)) == []
        assert half_set(trackers(**rest)) == [f"wandb is not used: trackers.{missing} is not set"]
    mlflow = {"mlflow_tracking_uri": "u", "mlflow_experiment_name": "e", "mlflow_run_name": "r"}
    assert active(trackers(**WANDB, **mlflow)) == ["wandb", "mlflow"]


def test_b14_the_older_name_of_upload_rollouts() -> None:
    assert trackers().upload_rollouts
    assert not trackers(upload_rollouts_to_wandb=False).upload_rollouts


def test_b12_scalars_alone_under_agent_and_key_metrics() -> None:
    assert scalars([AGENT]) == SENT


def test_b14_rollouts_go_without_trajectories_and_raw_payloads(results: Path) -> None:
    texts, left = rollout_texts(results)
    assert left == 0
    assert json.loads(texts[0]) == {
        "reward": 1.0,
        "response": {"output": [{"type": "message", "content": "héllo"}]},
        "_ng_task_index": 0,
    }


def test_the_table_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollstream.trackers.scalars.MAX_ROWS", 2)
    path = tmp_path / "r.jsonl"
    path.write_text('{"reward": 1}\n' * 5)
    texts, left = rollout_texts(path)
    assert (len(texts), left) == (2, 3)


@pytest.mark.timeout(120)
async def test_b14_mlflow_in_a_folder(tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    store = tmp_path / "store"
    given = {"mlflow_tracking_uri": store.as_uri(), "mlflow_experiment_name": "exp", "mlflow_run_name": "night"}
    assert await export(trackers(**given), [AGENT], results, {"model": "m"}) == []
    (metric,) = store.rglob("metrics/mcqa/pass_at_1.avg-of-2/accuracy")
    assert metric.read_text().split()[1] == "50.0"
    run = metric.parents[3]
    assert (run / "params" / "model").read_text() == "m"
    assert (run / "tags" / "mlflow.runName").read_text() == "night"
    assert json.loads((run / "artifacts" / "metrics.json").read_text()) == SENT
    table = json.loads((run / "artifacts" / "Rollouts.json").read_text())
    assert table["columns"] == ["Rollout"]
    assert json.loads(table["data"][0][0])["reward"] == 1.0
    assert "Rollouts.json" in (run / "tags" / "mlflow.loggedArtifacts").read_text()
    assert "name: exp" in (run.parent / "meta.yaml").read_text()
    assert "status: 3" in (run / "meta.yaml").read_text()  # finished


@pytest.mark.timeout(120)
@pytest.mark.parametrize("upload", [True, False])
async def test_b14_wandb_offline(tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch, upload: bool) -> None:
    pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert await export(trackers(**WANDB, upload_rollouts=upload), [AGENT], results, {"model": "m"}) == []
    (stored,) = list(tmp_path.rglob("*.wandb"))  # noqa: ASYNC240 - nothing else waits here
    data = stored.read_bytes()
    for name in (*SENT, "night"):
        assert name.encode() in data
    assert KEY.encode() not in data
    tables = list(stored.parent.rglob("Rollouts*.table.json"))
    assert len(tables) == upload
    for table in tables:
        found = json.loads(table.read_text())
        assert found["columns"] == ["Rollout"]
        assert json.loads(found["data"][0][0])["reward"] == 1.0


async def test_b14_a_tracker_that_refuses_is_a_note_without_the_key(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = f"import sys; sys.stdin.read(); sys.exit('no such project for {KEY}')"
    stand_in(monkeypatch, program)
    assert await export(trackers(**WANDB), [AGENT], results) == ["wandb got no metrics: no such project for ********"]


async def test_b14_a_tracker_that_hangs_is_left_at_the_deadline(
    tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "grandchild"
    grandchild = f"import time; time.sleep(4); open({str(mark)!r}, 'w')"
    program = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {grandchild!r}]); time.sleep(60)"
    stand_in(monkeypatch, program)
    began = time.monotonic()
    notes = await export(trackers(**WANDB, timeout_s=1), [AGENT], results)
    assert time.monotonic() - began < 30
    assert notes == ["wandb did not answer within 1 s; the metrics are in the files"]
    assert not mark.exists()


async def test_nothing_is_started_without_a_tracker_or_without_results(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "raise SystemExit('started')")
    assert await export(trackers(), [AGENT], results) == []
    assert await export(trackers(**WANDB), [], results) == []


def test_names_in_mlflows_letters() -> None:
    assert mlflow_name("a/pass@1[avg-of-2]/é=x") == "a/pass_at_1.avg-of-2/__x"


def stand_in(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """The child process runs `program` instead of ours."""
    import asyncio

    real = asyncio.create_subprocess_exec

    async def start(*_: str, **options: Any) -> Any:
        return await real(sys.executable, "-c", program, **options)

    monkeypatch.setattr("rollstream.trackers.exporting.asyncio.create_subprocess_exec", start)
