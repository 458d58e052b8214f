"""Resuming from files, ours and the reference's, by one code path (platform.md B6, A6, A9)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from environments.registry import Registry
from rollstream.runner.plan import RunRequest
from rollstream.runner.prepare import Prepared, RunError
from rollstream.runner.resume import prepare
from rollstream.settings.model import Settings
from services.sink.line_files import Mode
from services.sink.paths import RunPaths

REF = {"agent_ref": {"type": "responses_api_agents", "name": "mcqa_simple_agent"}}
OPTIONS = {"options": [{"A": "one"}, {"B": "two"}], "expected_answer": "B"}


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.load()


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return RunPaths.of(tmp_path / "out" / "r.jsonl")


def row(task: int, rollout: int = 0, **more: Any) -> dict[str, Any]:
    params = {"input": [{"role": "user", "content": f"question {task}"}]}
    key = {"_ng_task_index": task, "_ng_rollout_index": rollout}
    return {"responses_create_params": params, **OPTIONS, **key, **REF, **more}


def result(task: int, rollout: int = 0, **more: Any) -> dict[str, Any]:
    return {**row(task, rollout), "response": {"id": "r", "object": "response", "output": []}, "reward": 1.0, **more}


def failure(task: int, rollout: int = 0, **more: Any) -> dict[str, Any]:
    return {**row(task, rollout), "_ng_failure_class": "remote_agent_error", **more}


def write(path: Path, *lines: Any, tail: bytes = b"") -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(json.dumps(x).encode() + b"\n" for x in lines) + tail)


def resume(paths: RunPaths, registry: Registry, settings: Settings | None = None, **more: Any) -> Prepared:
    return prepare(RunRequest(paths.results, resume=True, **more), settings or Settings(), registry, paths)


def dispatched(prepared: Prepared, rows: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    """(task, rollout, attempt) of what would be sent."""
    plan = prepared.plan
    keys = [(r["_ng_task_index"], r["_ng_rollout_index"]) for r in rows]
    attempts = [(*k, (plan.attempts or {}).get(k, 0)) for k in keys]
    return [a for a in attempts if a not in plan.skip]


def test_b6_a_run_of_the_reference_goes_on_from_its_three_files(paths: RunPaths, registry: Registry) -> None:
    rows = [row(t, i) for t in range(4) for i in range(2)]
    write(paths.materialized, *rows)
    write(paths.results, result(0, 1), result(0, 0), result(1, 0, _ng_attempt_index=1), tail=b'{"reward": 1.0, "_ng_')
    write(
        paths.failures,
        failure(1, 0),  # failed once, then done
        failure(1, 1),
        failure(2, 0),
        failure(2, 0),
        failure(2, 0),  # exhausted
        failure(2, 1, _ng_failure_terminal=True),
    )
    found = resume(paths, registry)
    assert dispatched(found, rows) == [(1, 1, 1), (3, 0, 0), (3, 1, 0)]
    assert found.notes[-1] == "resuming: 8 inputs, 3 done, 6 prior failures, 1 terminal, 1 exhausted, 3 remaining"
    assert "r_run.json is missing" in found.notes[0]
    assert (found.mode, found.record.rollouts, len(found.ended)) == (Mode.RESUME, 8, 5)
    assert sum(found.ended.values()) == 3
    assert dict(found.plan.group_sizes) == {0: 2, 1: 2, 2: 2, 3: 2}
    assert found.problems == ()


def test_a9_the_cap_is_a_variable_and_a_wrong_one_is_said(
    paths: RunPaths, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row(0)]
    write(paths.materialized, *rows)
    write(paths.results)
    write(paths.failures, failure(0), failure(0), failure(0))
    monkeypatch.setenv("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", "4")
    assert dispatched(resume(paths, registry), rows) == [(0, 0, 3)]
    monkeypatch.setenv("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", "many")
    found = resume(paths, registry)
    assert dispatched(found, rows) == []
    assert "note: NEMO_GYM_MAX_ROLLOUT_ATTEMPTS=many is no number of attempts; 3 are made" in found.notes


def test_stored_rows_that_nothing_here_can_run_cost_themselves_alone(paths: RunPaths, registry: Registry) -> None:
    bad = row(1)
    bad["responses_create_params"]["max_tokens"] = 5
    rows = [row(0), bad, {**row(2), "agent_ref": {"name": "nobodys_agent"}}, row(0), {"x": 1}, row(3)]
    write(paths.materialized, *rows, tail=b'{"torn')
    write(paths.results)
    found = resume(paths, registry)
    assert [p.line for p in found.problems] == [2, 3, 4, 5]
    said = " ".join(p.message for p in found.problems)
    assert "max_tokens: unknown key" in said
    assert "nobodys_agent" in said
    assert "rollout 0:0 occurs twice" in said
    assert "no _ng_task_index" in said
    assert dispatched(found, [row(0), row(1), row(2), row(3)]) == [(0, 0, 0), (3, 0, 0)]
    assert found.record.rollouts == 2
    assert any("the last line is cut off" in n for n in found.notes)


def started(paths: RunPaths, registry: Registry, source: Path, settings: Settings, **more: Any) -> RunRequest:
    """A run of ours that has been killed before its first result."""
    request = RunRequest(paths.results, input=source, **more)
    fresh = prepare(request, settings, registry, paths)
    assert fresh.draft is not None
    fresh.draft.replace(paths.materialized)
    fresh.record.write(paths.run)
    write(paths.results)
    return replace(request, resume=True)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    question = {k: v for k, v in row(0).items() if not k.startswith("_ng_")}
    write(path, question, {**question, "expected_answer": "A"})
    return path


def model(url: str = "http://h/v1", name: str = "m") -> Settings:
    return Settings(model={"url": url, "name": name})  # type: ignore[arg-type]


def test_b6_better_the_same_command_goes_on_and_another_is_refused_with_what_changed(
    paths: RunPaths, registry: Registry, source: Path
) -> None:
    more: dict[str, Any] = {"repeats": {"mcqa_simple_agent": 2}, "overrides": {"temperature": 0.5}, "add_seed": True}
    request = started(paths, registry, source, model(), **more)
    same = prepare(request, model(), registry, paths)
    assert same.record.rollouts == 4
    assert same.notes == ("resuming: 4 inputs, 0 done, 0 prior failures, 0 terminal, 0 exhausted, 4 remaining",)
    changed = replace(request, overrides={"temperature": 0.7, "top_p": 0.9}, repeats={"mcqa_simple_agent": 3}, add_seed=False)
    with pytest.raises(RunError) as error:
        prepare(changed, model(name="other"), registry, paths)
    lines = str(error.value).splitlines()
    assert "made with another configuration (stored, then now)" in lines[0]
    assert sorted(lines[1:-1]) == [
        '  model.name: "m" → "other"',
        "  overrides.temperature: 0.5 → 0.7",
        "  overrides.top_p: none → 0.9",
        "  repeats.mcqa_simple_agent: 2 → 3",
        "  seeds: true → none",
    ]
    assert "--allow-changes" in lines[-1]


def test_b6_changes_may_be_allowed_and_are_noted_in_the_record(paths: RunPaths, registry: Registry, source: Path) -> None:
    request = started(paths, registry, source, model())
    allowed = prepare(replace(request, allow_changes=True), model(name="other"), registry, paths)
    assert allowed.record.model["name"] == "other"
    (change,) = allowed.record.changes
    assert change.endswith('model.name: "m" → "other"')
    allowed.record.write(paths.run)
    assert prepare(request, model(name="other"), registry, paths).record.changes == [change]


def test_b6_files_that_were_edited_are_a_change_and_files_that_are_gone_are_none(
    paths: RunPaths, registry: Registry, source: Path, tmp_path: Path
) -> None:
    question = {k: v for k, v in row(0).items() if not k.startswith("_ng_")}
    write(source, {**question, "responses_create_params": {}})
    prompt = tmp_path / "p.yaml"
    prompt.write_text("user: '{expected_answer}?'")
    request = started(paths, registry, source, model(), prompt_config=prompt)
    prepare(request, model(), registry, paths)
    prompt.write_text("user: '{expected_answer}!'")
    with pytest.raises(RunError, match="prompt_config_sha256"):
        prepare(request, model(), registry, paths)
    prompt.unlink()
    source.unlink()
    prepare(request, model(), registry, paths)
    stored = [json.loads(x) for x in paths.materialized.read_bytes().splitlines()]
    assert stored[0]["responses_create_params"]["input"] == [{"role": "user", "content": "B?"}]


def test_b6_without_a_source_the_stored_rows_are_enough(paths: RunPaths, registry: Registry, source: Path) -> None:
    started(paths, registry, source, model(), overrides={"temperature": 0.5}, repeats=3)
    assert resume(paths, registry, model()).record.rollouts == 6
    with pytest.raises(RunError, match=r"overrides\.temperature: 0\.5 → 1"):
        resume(paths, registry, model(), overrides={"temperature": 1})
    with pytest.raises(RunError, match=r"repeats: 3 → 2"):
        resume(paths, registry, model(), repeats=2)
    with pytest.raises(RunError, match=r"model\.url"):
        resume(paths, registry, model(url="http://other/v1"))


def test_b6_what_is_missing_is_said_and_a_new_run_begins(paths: RunPaths, registry: Registry, source: Path) -> None:
    found = resume(paths, registry, input=source)
    assert found.mode is Mode.FRESH
    assert found.notes[0] == f"nothing to resume: {paths.materialized} and {paths.results} are missing; a new run begins"
    with pytest.raises(RunError, match="are missing; name what to run to start anew"):
        resume(paths, registry)


def test_results_without_their_rows_are_not_cleared(paths: RunPaths, registry: Registry, source: Path) -> None:
    write(paths.results, result(0))
    with pytest.raises(RunError, match=r"materialized_inputs\.jsonl is missing, and a new run would clear the results in"):
        resume(paths, registry, input=source)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("r.jsonl", b"nonsense\n{}\n", r"r\.jsonl:1: not JSON"),
        ("r_failures.jsonl", b"[1]\n", r"r_failures\.jsonl:1: expected a JSON object"),
        ("r_materialized_inputs.jsonl", b"[1]\n", r"r_materialized_inputs\.jsonl:1: expected a JSON object"),
        ("r_run.json", b"{}", r"r_run\.json is not a run record"),
    ],
)
def test_a_broken_file_is_named(paths: RunPaths, registry: Registry, name: str, data: bytes, said: str) -> None:
    write(paths.materialized, row(0))
    write(paths.results)
    (paths.results.parent / name).write_bytes(data)
    with pytest.raises(RunError, match=said):
        resume(paths, registry)
