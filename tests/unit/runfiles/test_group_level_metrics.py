"""`group_level_metrics` of the aggregates, and what environments add to it (platform.md B12)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from environments.environment import Environment, Scores
from rollstream.runfiles.aggregate import aggregate
from schemas.errors import DataError
from services.sink.paths import RunPaths


def line(task: int, rollout: int = 0, reward: float | None = None, **more: Any) -> dict[str, Any]:
    score = {} if reward is None else {"reward": reward}
    ref = {"agent_ref": {"type": "responses_api_agents", "name": "a"}}
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, **ref, **score, **more}


def write(path: Path, *lines: Any) -> None:
    path.write_bytes(b"".join(json.dumps(x).encode() + b"\n" for x in lines))


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return RunPaths.of(tmp_path / "out.jsonl")


def registry_of(environment: Environment) -> Any:
    class Registry:
        def binding(self, variant: str | None, agent: str | None) -> Any:
            if agent != "a":
                raise DataError(f"unknown agent {agent}")
            return type("Bound", (), {"environment": environment})

    return Registry()


def test_b12_golden_by_task_in_the_order_of_its_keys(paths: RunPaths) -> None:
    usage = {"response": {"usage": {"input_tokens": 7, "input_tokens_details": {"cached_tokens": 1}}}}
    write(paths.materialized, *(line(t, i) for t in range(3) for i in range(2)))
    rewards = [(1, 1, 1.0), (0, 0, 1.0), (1, 0, 0.0), (0, 1, 1.0), (2, 0, 0.0)]
    write(paths.results, *(line(t, i, r, ok=r > 0, text="x", nothing=None, **usage) for t, i, r in rewards))
    groups = aggregate(paths).agents[0]["group_level_metrics"]
    assert [g["_ng_task_index"] for g in groups] == [0, 1, 2]
    assert groups[0]["std/reward"] == 0.0
    assert groups[1]["mean/reward"] == 0.5
    assert groups[1]["std/reward"] == pytest.approx(0.7071067811865476, rel=1e-15)
    assert groups[2]["std/reward"] == 0.0  # a single rollout
    assert next(iter(groups[1])) == "_ng_task_index"
    assert list(groups[1])[-6:] == [
        "sample",
        "num_rollouts",
        "expected_num_rollouts",
        "missing_num_rollouts",
        "reward_profile_completion_pct",
        "rollout_infos",
    ]
    assert groups[1]["sample"] == {"agent_ref": {"name": "agent"}}
    counts = ("num_rollouts", "expected_num_rollouts", "missing_num_rollouts", "reward_profile_completion_pct")
    assert [groups[2][c] for c in counts] == [1, 2, 1, 50.0]
    assert [groups[1][c] for c in counts] == [2, 2, 0, 100.0]
    assert groups[1]["rollout_infos"] == [
        {"rollout_id": "1:0", "_ng_task_index": 1, "_ng_rollout_index": 0, "reward": 0.0, "ok": 0, "input_tokens": 7},
        {"rollout_id": "1:1", "_ng_task_index": 1, "_ng_rollout_index": 1, "reward": 1.0, "ok": 1, "input_tokens": 7},
    ]


def test_b12_without_inputs_what_is_there_is_what_was_expected(paths: RunPaths) -> None:
    write(paths.results, line(4, 3, 1.0))
    (group,) = aggregate(paths).agents[0]["group_level_metrics"]
    assert (group["expected_num_rollouts"], group["missing_num_rollouts"], group["reward_profile_completion_pct"]) == (
        1,
        0,
        100,
    )


class Counting(Environment):
    """Says of its tasks how often the word came, and keeps what it was given."""

    metrics = Scores(answer="answer")
    seen: list[Any]

    def own_metrics(self, tasks: Any) -> Any:
        self.seen = [dict(line) for lines in tasks for line in lines]
        per_task = [{"_ng_task_index": t[0]["_ng_task_index"], "words": sum(x["word"] for x in t)} for t in tasks]
        return {"mean/words": 1.5, "per_task_metrics": per_task}


def test_b12_an_environments_own_metrics_see_light_lines_and_join_their_tasks(paths: RunPaths) -> None:
    heavy = {"response": {"usage": {"input_tokens": 7}, "output": ["long"]}, "responses_create_params": {"input": "long"}}
    write(paths.results, *(line(t, i, 1.0, word=t + i, ng_trajectory=["long"], **heavy) for t in (1, 0) for i in (1, 0)))
    environment = Counting()
    (found,) = aggregate(paths, registry_of(environment)).agents
    assert [(x["_ng_task_index"], x["_ng_rollout_index"]) for x in environment.seen] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert "long" not in json.dumps(environment.seen)
    assert environment.seen[0]["response"] == {"usage": {"input_tokens": 7}}
    assert [g["words"] for g in found["group_level_metrics"]] == [1, 3]
    assert "per_task_metrics" not in found["agent_metrics"]
    assert found["key_metrics"]["mean/words"] == 1.5


class Noting(Environment):
    def notes(self, lines: Any) -> Any:
        return [f"{sum(line['word'] for line in lines):g} words"]


def test_an_environments_notes_stand_beside_the_averages(paths: RunPaths) -> None:
    write(paths.results, line(0, 0, 1.0, word=2), line(0, 1, 1.0, word=3))
    (found,) = aggregate(paths, registry_of(Noting())).agents
    assert found["notes"] == ["5 words"]
    write(paths.results, line(0, 0, 1.0))
    (found,) = aggregate(paths, registry_of(Noting())).agents
    assert found["notes"] == ["the environment's notes are left out: KeyError: 'word'"]


def test_an_environment_whose_metrics_fail_costs_only_those(paths: RunPaths) -> None:
    write(paths.results, line(0, 0, 1.0))  # without the field it counts
    (found,) = aggregate(paths, registry_of(Counting())).agents
    assert found["notes"] == ["the environment's own metrics are left out: KeyError: 'word'"]
    assert found["agent_metrics"]["mean/reward"] == 1.0


def test_b12_better_every_average_has_its_denominator(paths: RunPaths) -> None:
    class Answers(Environment):
        metrics = Scores(answer="answer", subset="level")

    write(paths.materialized, *(line(t, i) for t in range(3) for i in range(3)))
    write(
        paths.results,
        *(line(0, i, r, answer="x", level="easy") for i, r in enumerate((0.2, 0.9, 0.4))),
        line(1, 0, 0.5, answer=None, level="hard", x=3),
    )
    (found,) = aggregate(paths, registry_of(Answers())).agents
    over = found["denominators"]
    assert found["agent_metrics"]["pass@1/accuracy"] == 35  # golden 2 of B11
    assert (over["pass@1/accuracy"], over["pass@2/accuracy"], over["pass@3/accuracy"]) == (2, 1, 1)
    assert (over["pass@1[avg-of-3]/accuracy"], over["majority@3/accuracy"]) == (2, 2)
    assert (over["mean/reward"], over["mean/x"]) == (4, 1)
    assert over["easy/pass@3/accuracy"] == 1
    assert over.keys() <= found["agent_metrics"].keys()
    averages = {k for k in found["agent_metrics"] if k.startswith(("mean/", "pass@", "majority@")) and "/std_" not in k}
    assert averages <= over.keys()
    shifted = {"mean/x", *(f"pass@{k}/{s}" for k in (2, 3) for s in ("accuracy", "no_answer"))}
    assert set(found["completeness"]["shifted"]) == shifted
    assert found["completeness"]["tasks"] == {"expected": 3, "scored": 2, "whole": 1}
