from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from environments.environment import Environment, Scores
from rollstream.runfiles.aggregate import aggregate, write_aggregate
from rollstream.runfiles.readers import MalformedLineError
from schemas.errors import DataError
from services.sink.paths import RunPaths


def line(task: int, rollout: int = 0, reward: float | None = None, agent: str | None = "a", **more: Any) -> dict[str, Any]:
    ref = {} if agent is None else {"agent_ref": {"type": "responses_api_agents", "name": agent}}
    score = {} if reward is None else {"reward": reward}
    return {**ref, **score, "_ng_task_index": task, "_ng_rollout_index": rollout, **more}


def write(path: Path, *lines: Any, tail: bytes = b"") -> None:
    path.write_bytes(b"".join(json.dumps(x).encode() + b"\n" for x in lines) + tail)


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return RunPaths.of(tmp_path / "out.jsonl")


class OneEnvironment(Environment):
    """A registry of one agent whose environment has an answer field."""

    metrics = Scores(answer="answer")

    def binding(self, variant: str | None, agent: str | None) -> Any:
        if agent != "a":
            raise DataError(f"unknown agent {agent}")
        return type("Bound", (), {"environment": self})


def test_golden_basic_statistics(paths: RunPaths) -> None:
    """platform.md B10: rewards by task (1,1), (0,1), (0)."""
    write(paths.results, line(0, 0, 1), line(0, 1, 1), line(1, 0, 0), line(1, 1, 1), line(2, 0, 0))
    (found,) = aggregate(paths).agents
    assert found["agent_ref"] == {"name": "a"}
    assert found["agent_metrics"]["mean/reward"] == pytest.approx(0.6)
    assert found["agent_metrics"]["std/reward"] == pytest.approx(0.5477225575051662)
    assert found["agent_metrics"]["median/reward"] == 1.0
    assert found["key_metrics"] == {"mean/reward": pytest.approx(0.6)}


def test_golden_pass_at_k_in_any_order_of_completion(paths: RunPaths) -> None:
    """platform.md B11, golden 1: the values at k = 2 and 4."""
    tasks = {
        0: [(1, "7"), (0, "8"), (1, "7"), (0, None)],
        1: [(0, "x"), (0, "x"), (0, "y"), (0, "y")],
        2: [(1, "b"), (1, "b"), (1, "b"), (0, "c")],
    }
    lines = [line(t, i, r, answer=a) for t, rollouts in tasks.items() for i, (r, a) in enumerate(rollouts)]
    write(paths.results, *reversed(lines))
    (found,) = aggregate(paths, OneEnvironment()).agents  # type: ignore[arg-type]
    metrics = found["agent_metrics"]
    assert metrics["pass@2/accuracy"] == pytest.approx(61.1111, abs=1e-4)
    assert metrics["pass@1[avg-of-4]/accuracy"] == pytest.approx(41.6667, abs=1e-4)
    assert metrics["majority@4/accuracy"] == pytest.approx(66.6667, abs=1e-4)
    assert metrics["pass@4/no_answer"] == pytest.approx(33.3333, abs=1e-4)
    assert set(found["key_metrics"]) == {"mean/reward"}


def test_subsets_and_the_headline_that_an_environment_chooses(paths: RunPaths) -> None:
    registry = OneEnvironment()
    chosen = ("mean/*_tokens", "pass@{k}/accuracy", "{subset}/pass@1[avg-of-{k}]/accuracy")
    registry.metrics = Scores(answer="answer", subset="level", sample_std_dev=True, headline=chosen)
    usage = {"response": {"usage": {"output_tokens": 7}}}
    easy = [line(0, i, r, answer="x", level="easy", **usage) for i, r in enumerate((1, 0))]
    hard = [line(1, i, r, answer="x", level="hard", **usage) for i, r in enumerate((0, 0))]
    write(paths.results, *easy, *hard, line(2, reward=1, level=None, **usage))
    (found,) = aggregate(paths, registry).agents  # type: ignore[arg-type]
    assert found["key_metrics"] == {
        "mean/output_tokens": 7,
        "pass@2/accuracy": 50,
        "easy/pass@1[avg-of-2]/accuracy": 50,
        "hard/pass@1[avg-of-2]/accuracy": 0,
    }
    assert found["agent_metrics"]["easy/pass@2/accuracy"] == 100
    assert found["agent_metrics"]["easy/pass@1[avg-of-2]/accuracy/avg_sample_std_dev"] == pytest.approx(0.7071, abs=1e-4)
    assert "mean/reward" in found["agent_metrics"]


def test_agents_apart_and_an_unknown_one_has_the_basic_statistics(paths: RunPaths) -> None:
    write(paths.results, line(0, reward=1), line(1, reward=0, agent="b"), line(2, reward=1, agent=None))
    one, two, three = aggregate(paths, OneEnvironment()).agents  # type: ignore[arg-type]
    assert [a["agent_ref"]["name"] for a in (one, two, three)] == ["a", "b", "unknown"]
    assert "pass@1/accuracy" in one["agent_metrics"]
    assert two["agent_metrics"]["mean/reward"] == 0
    assert "pass@1/accuracy" not in two["agent_metrics"]


def test_denominators(paths: RunPaths) -> None:
    write(paths.materialized, *(line(t) for t in range(6)), line(9, agent="b"))
    write(paths.results, line(0, reward=1, mask_sample=True), line(1, reward=0))
    write(
        paths.failures,
        line(1, _ng_failure_class="model"),  # failed once, then scored
        line(2, _ng_failure_class="model"),
        line(2, _ng_failure_class="timeout", _ng_attempt_index=1),  # the last class counts
        line(3, agent=None, _ng_failure_class="data"),  # the agent is known from the inputs
        line(0, _ng_failure_class="data", outcome="duplicate"),
        {"_ng_failure_class": "data"},
    )
    one, two = aggregate(paths).agents
    assert one["completeness"] == {
        "expected": 6,
        "scored": 2,
        "failed": {"data": 1, "timeout": 1},
        "missing": 2,
        "masked": 1,
        "complete": False,
        "tasks": {"expected": 6, "scored": 2, "whole": 2},
        "shifted": ["mean/mask_sample"],
    }
    assert two["completeness"] == {
        "expected": 1,
        "scored": 0,
        "failed": {},
        "missing": 1,
        "masked": 0,
        "complete": False,
        "tasks": {"expected": 1, "scored": 0, "whole": 0},
        "shifted": [],
    }
    assert two["agent_metrics"] == {}


def test_a_file_on_its_own_does_not_know_what_was_asked_for(paths: RunPaths) -> None:
    write(paths.results, line(0, reward=1))
    assert aggregate(paths).agents[0]["completeness"] == {
        "expected": None,
        "scored": 1,
        "failed": {},
        "missing": None,
        "masked": 0,
        "complete": None,
        "tasks": {"expected": None, "scored": 1, "whole": None},
        "shifted": [],
    }


def test_a_rollout_counts_once_and_a_torn_line_not_at_all(paths: RunPaths) -> None:
    write(paths.results, line(0, reward=1), line(0, reward=0), tail=b'{"reward":')
    found = aggregate(paths)
    assert found.agents[0]["completeness"]["scored"] == 1
    assert [t.number for t in found.torn] == [3]


def test_a_broken_line_is_an_error(paths: RunPaths) -> None:
    write(paths.results, "nonsense", line(0, reward=1))
    with pytest.raises(MalformedLineError, match=r"out\.jsonl:1: expected a JSON object"):
        aggregate(paths)


def test_the_file_is_indented_json_and_goes_when_there_are_no_results(paths: RunPaths) -> None:
    write(paths.results, line(0, reward=0.5, agent="é"))
    write_aggregate(paths)
    assert paths.aggregate.read_text().startswith('[\n  {\n    "agent_ref": {\n      "name": "é"')
    (found,) = json.loads(paths.aggregate.read_bytes())
    assert found["agent_metrics"]["mean/reward"] == 0.5
    write(paths.results)
    write(paths.failures, line(0, _ng_failure_class="model"))
    assert write_aggregate(paths).agents[0]["completeness"]["failed"] == {"model": 1}
    assert not paths.aggregate.exists()


def test_what_is_kept_of_a_rollout_does_not_grow_with_its_conversation(paths: RunPaths) -> None:
    import tracemalloc

    heavy = {"response": {"usage": {"input_tokens": 5}, "output": [{"text": "x" * 20_000}]}}
    with paths.results.open("wb") as file:
        for i in range(1000):
            file.write(json.dumps(line(i, reward=1, **heavy)).encode() + b"\n")
    tracemalloc.start()
    aggregate(paths)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak / 1000 < 6000  # most of it its task's object in the file
