"""Shards and their aggregate (platform.md B9): the same files as a single run would have made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from environments.registry import Registry
from rollstream.cli import app
from rollstream.runfiles.aggregate import write_aggregate
from rollstream.runfiles.shards import ShardError, find_shards, merge_shards
from services.sink.paths import RunPaths

REF = {"agent_ref": {"type": "responses_api_agents", "name": "mcqa_simple_agent"}}


def row(task: int, rollout: int) -> dict[str, Any]:
    params = {"input": f"question {task}"}
    return {"responses_create_params": params, **REF, "_ng_task_index": task, "_ng_rollout_index": rollout}


def result(task: int, rollout: int, reward: float = 1.0) -> dict[str, Any]:
    return {**row(task, rollout), "response": {"usage": {"output_tokens": task + rollout}}, "reward": reward}


def write(path: Path, *lines: Any, tail: bytes = b"") -> Path:
    path.write_bytes(b"".join(json.dumps(x).encode() + b"\n" for x in lines) + tail)
    return path


def cli(*args: Any) -> Any:
    return CliRunner().invoke(app, ["aggregate", *map(str, args)])


KEYS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.sampled_from([0.0, 0.5, 1.0])), unique_by=lambda k: k[:2])


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(KEYS.filter(bool), st.integers(1, 4), st.randoms(use_true_random=False))
def test_b9_shards_give_the_files_of_one_run(tmp_path: Path, keys: Any, count: int, random: Any) -> None:
    whole = [result(*k) for k in sorted(keys)]
    dealt: list[list[Any]] = [[] for _ in range(count)]
    for line in random.sample(whole, len(whole)):
        random.choice(dealt).append(line)
    shards = []
    for i, lines in enumerate(dealt):
        shards.append(write(tmp_path / f"s{i}.jsonl", *lines))
        write(tmp_path / f"s{i}_materialized_inputs.jsonl", *(row(x["_ng_task_index"], x["_ng_rollout_index"]) for x in lines))
    one = RunPaths.of(tmp_path / "one.jsonl")
    write(one.results, *random.sample(whole, len(whole)))
    write(one.materialized, *(row(*k[:2]) for k in keys))
    registry = Registry.load()
    write_aggregate(one, registry)
    merged = RunPaths.of(tmp_path / "merged" / "all.jsonl")
    assert merge_shards(shards, merged.results).rollouts == len(whole)
    write_aggregate(merged, registry, [RunPaths(s) for s in shards])
    assert [json.loads(x) for x in merged.results.read_bytes().splitlines()] == whole
    assert merged.aggregate.read_bytes() == one.aggregate.read_bytes()


def test_b9_globs_are_trimmed_and_a_path_counts_once(tmp_path: Path) -> None:
    a, b = write(tmp_path / "s-a.jsonl", result(0, 0)), write(tmp_path / "s-b.jsonl", result(1, 0))
    write(tmp_path / "s-a_failures.jsonl", {"x": 1})
    write(tmp_path / "s-a_materialized_inputs.jsonl", row(0, 0))
    out = write(tmp_path / "s-all.jsonl", result(0, 0))  # what an earlier call has written
    found = find_shards([f" {tmp_path}/s-a.jsonl , {tmp_path}/s-*.jsonl,", f"{tmp_path}/./s-b.jsonl"], out)
    assert found == [a, b]


def test_b9_no_match_is_an_error(tmp_path: Path) -> None:
    shown = cli(tmp_path / "none-*.jsonl", "-o", tmp_path / "all.jsonl")
    assert (shown.exit_code, shown.stderr) == (2, f"rollstream: no file matches {tmp_path}/none-*.jsonl\n")
    write(tmp_path / "x_failures.jsonl")
    with pytest.raises(ShardError, match="no results file"):
        find_shards([str(tmp_path / "*.jsonl")], tmp_path / "all.jsonl")


def test_b9_a_malformed_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "s1.jsonl").write_bytes(b'{"a": \n' + json.dumps(result(0, 0)).encode() + b"\n")
    shown = cli(tmp_path / "s1.jsonl", "-o", tmp_path / "all.jsonl")
    assert shown.exit_code == 1
    assert f"{tmp_path}/s1.jsonl:1: not JSON" in shown.stderr
    assert not (tmp_path / "all.jsonl").exists()


def test_b9_command_merges_reports_and_can_leave_the_file(tmp_path: Path) -> None:
    write(tmp_path / "s1.jsonl", result(1, 0, 0.0), result(0, 0), tail=b'{"rew')
    write(tmp_path / "s2.jsonl", result(0, 1), result(0, 0))
    for name in ("s1", "s2"):
        write(
            tmp_path / f"{name}_materialized_inputs.jsonl",
            *([row(0, 0), row(1, 0)] if name == "s1" else [row(0, 1), row(2, 0)]),
        )
    shown = cli(f"{tmp_path}/s*.jsonl", "-o", tmp_path / "all.jsonl", "--no-merge")
    assert shown.exit_code == 0, shown.output
    assert not (tmp_path / "all.jsonl").exists()
    shown = cli(f"{tmp_path}/s*.jsonl", "-o", tmp_path / "all.jsonl", "--min-completeness", "80")
    assert shown.exit_code == 1
    assert "3 of 4 rollouts have a result, 75.00 %; 80 % were asked for" in shown.stderr
    assert "s1.jsonl:3: the last line is cut off" in shown.stderr
    assert f"s2.jsonl:2: rollout 0:0 is in {tmp_path}/s1.jsonl:2 already, which counts" in shown.stderr
    lines = [json.loads(x) for x in (tmp_path / "all.jsonl").read_bytes().splitlines()]
    assert [(x["_ng_task_index"], x["_ng_rollout_index"]) for x in lines] == [(0, 0), (0, 1), (1, 0)]
    (agent,) = json.loads((tmp_path / "all_aggregate_metrics.json").read_bytes())
    assert agent["completeness"]["missing"] == 1
    assert agent["agent_metrics"]["pass@1[avg-of-2]/accuracy"] == 50


def test_b9_shards_that_were_numbered_apart_are_refused(tmp_path: Path) -> None:
    other = {**result(0, 0), "responses_create_params": {"input": "another question"}}
    write(tmp_path / "s1.jsonl", result(0, 0))
    write(tmp_path / "s2.jsonl", other)
    shown = cli(f"{tmp_path}/s*.jsonl", "-o", tmp_path / "all.jsonl")
    assert shown.exit_code == 2
    assert "of different requests: the shards were numbered apart" in shown.stderr


def test_a_shard_without_its_inputs_makes_the_whole_unknown(tmp_path: Path) -> None:
    write(tmp_path / "s1.jsonl", result(0, 0))
    write(tmp_path / "s1_materialized_inputs.jsonl", row(0, 0))
    write(tmp_path / "s2.jsonl", result(1, 0))
    shown = cli(f"{tmp_path}/s*.jsonl", "-o", tmp_path / "all.jsonl", "--min-completeness", "50")
    assert shown.exit_code == 1
    assert "how many rollouts were asked for is not known" in shown.stderr
