from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from environments.registry import Registry
from rollstream.runfiles.expansion import Plan, TaskRow
from rollstream.runfiles.materialize import Materialized, materialize
from rollstream.runfiles.problems import PlanError, RowProblem
from rollstream.runfiles.source import Line, read_lines
from schemas.topics import MAX_PROMPT_BYTES
from services.sink.stopped import SinkStoppedError

MCQA, TOOL = "mcqa_simple_agent", "example_single_tool_call_simple_agent"


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.load()


def agents(registry: Registry) -> tuple[str, str]:
    """Names by which two environments' agents go."""
    one, other = (
        next(iter(e.manifest.variants.values())).agent.name
        for e in registry.entries
        if e.manifest.name in ("mcqa", "example_single_tool_call")
    )
    return one, other


def row(question: str = "q", agent: str | None = MCQA, **more: Any) -> dict[str, Any]:
    ref = {} if agent is None else {"agent_ref": {"type": "responses_api_agents", "name": agent}}
    return {"responses_create_params": {"input": question, **more.pop("params", {})}, **ref, **more}


def text(*rows: Any) -> bytes:
    return b"".join((r if isinstance(r, bytes) else json.dumps(r).encode()) + b"\n" for r in rows)


def expand(
    tmp_path: Path, registry: Registry, data: bytes, strict: bool = False, **plan: Any
) -> tuple[Materialized, list[dict[str, Any]]]:
    output = tmp_path / "run_materialized_inputs.jsonl"
    done = materialize(io.BytesIO(data), "rows.jsonl", output, Plan(**plan), registry, strict=strict)
    return done, [json.loads(x) for x in output.read_bytes().splitlines()] if done.path else []


def keys(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(r["_ng_task_index"], r["_ng_rollout_index"]) for r in rows]


def said(done: Materialized) -> list[str]:
    return [str(p) for p in done.problems]


def test_b4_copies_are_adjacent_and_b5_same_text_same_task(tmp_path: Path, registry: Registry) -> None:
    done, rows = expand(tmp_path, registry, text(row("a"), row("b"), row("c")), repeats=2)
    assert keys(rows) == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert (done.rollouts, done.tasks) == (6, {0: 2, 1: 2, 2: 2})


def test_b5_duplicated_lines_continue_the_count_and_the_file_is_in_order(tmp_path: Path, registry: Registry) -> None:
    done, rows = expand(tmp_path, registry, text(row("a"), row("b"), row("a")), repeats=2)
    assert keys(rows) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
    assert [r["responses_create_params"]["input"] for r in rows] == ["a"] * 4 + ["b"] * 2
    assert done.tasks == {0: 4, 1: 2}


def test_b5_better_the_line_end_is_no_part_of_the_text(tmp_path: Path, registry: Registry) -> None:
    one = json.dumps(row("a")).encode()
    _, rows = expand(tmp_path, registry, b"\xef\xbb\xbf" + one + b"\r\n\n" + one + b"\n" + one)
    assert keys(rows) == [(0, 0), (0, 1), (0, 2)]


def test_b5_own_indices_are_kept(tmp_path: Path, registry: Registry) -> None:
    _, rows = expand(
        tmp_path, registry, text(row("a", _ng_task_index=100), row("b", _ng_task_index=7), row("c", _ng_task_index=100))
    )
    assert keys(rows) == [(7, 0), (100, 0), (100, 1)]


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ([row("a", _ng_task_index=0), row("b")], 2),
        ([row("a"), row("b", _ng_task_index=0)], 2),
        ([row("a", _ng_task_index=1), row("b"), row("c")], 3),
    ],
)
def test_b5_better_own_and_given_indices_may_not_collide(
    tmp_path: Path, registry: Registry, rows: list[Any], line: int
) -> None:
    done, _ = expand(tmp_path, registry, text(*rows))
    (problem,) = done.problems
    assert problem.line == line
    assert "give every row a _ng_task_index, or none" in problem.message


def test_own_and_given_indices_that_stay_apart(tmp_path: Path, registry: Registry) -> None:
    done, rows = expand(tmp_path, registry, text(row("a"), row("b", _ng_task_index=50)))
    assert (keys(rows), done.problems) == ([(0, 0), (50, 0)], ())


def test_explicit_rollout_ids_are_unique(tmp_path: Path, registry: Registry) -> None:
    done, rows = expand(
        tmp_path, registry, text(row("a", _ng_rollout_id="x"), row("b", _ng_rollout_id="x"), row("a", _ng_rollout_id="x"))
    )
    assert [p.line for p in done.problems] == [2]
    assert len(rows) == 2


def test_b1_agent_is_filled_in_and_never_overwritten(tmp_path: Path, registry: Registry) -> None:
    one, other = agents(registry)
    data = text(row("a", agent=None), row("b", agent=one), row("c", agent=None, agent_ref=None))
    for plan in ({"agent": other}, {"environment": "example_single_tool_call" if other != MCQA else "mcqa"}):
        _, rows = expand(tmp_path, registry, data, **plan)
        assert [r["agent_ref"]["name"] for r in rows] == [other, one, other]
        assert rows[0]["agent_ref"]["type"] == "responses_api_agents"


def test_b1_rows_without_agent_are_all_reported(tmp_path: Path, registry: Registry) -> None:
    done, rows = expand(tmp_path, registry, text(row(agent=None), row("b"), row("c", agent=None)))
    assert [(p.file, p.line) for p in done.problems] == [("rows.jsonl", 1), ("rows.jsonl", 3)]
    assert "no agent_ref" in done.problems[0].message
    assert len(rows) == 1


def test_b1_overrides_are_shallow_win_and_null_is_a_value(tmp_path: Path, registry: Registry) -> None:
    given = row(params={"temperature": 0.5, "metadata": {"a": "1"}, "top_p": 0.9}, expected_answer="A")
    _, (found,) = expand(tmp_path, registry, text(given), overrides={"temperature": 1, "metadata": {"b": "2"}, "top_p": None})
    assert found["responses_create_params"] == {"input": "q", "temperature": 1, "metadata": {"b": "2"}, "top_p": None}
    assert found["expected_answer"] == "A"


def test_b1_limit_counts_lines_before_repetition(tmp_path: Path, registry: Registry) -> None:
    done, rows = expand(tmp_path, registry, text(row("a"), b"", row("b"), b"{broken"), limit=2, repeats=3)
    assert len(rows) == 6
    assert done.problems == ()


def test_b4_map(tmp_path: Path, registry: Registry) -> None:
    one, other = agents(registry)
    data = text(row("a", agent=one), row("b", agent=other))
    done, rows = expand(tmp_path, registry, data, repeats={one: 2, "_default": None, "never": 3, "nor_this": 1})
    assert keys(rows) == [(0, 0), (0, 1), (1, 0)]
    assert done.warnings == ("num_repeats: no row has the agent never, nor_this",)
    with pytest.raises(PlanError, match=f"no entry for {', '.join(sorted((one, other)))} and no _default"):
        expand(tmp_path / "other", registry, data, repeats={"never": 3})
    assert not list((tmp_path / "other").iterdir())


@pytest.mark.parametrize("repeats", [0, -1, True, 1.0, "2", 10**9, {"a": 0}])
def test_b4_bad_numbers(tmp_path: Path, registry: Registry, repeats: Any) -> None:
    with pytest.raises(PlanError, match="integer from 1"):
        expand(tmp_path, registry, text(row()), repeats=repeats)


def test_b4_seed_is_the_rollout_index_beside_other_keys(tmp_path: Path, registry: Registry) -> None:
    given = row(params={"metadata": {"extra_body": '{"min_p":0.1,"seed":9}', "other": "x"}})
    _, rows = expand(tmp_path, registry, text(given, given), repeats=2, add_seed=True)
    metadata = [r["responses_create_params"]["metadata"] for r in rows]
    assert [json.loads(m["extra_body"]) for m in metadata] == [{"min_p": 0.1, "seed": i} for i in range(4)]
    assert {m["other"] for m in metadata} == {"x"}
    done, _ = expand(tmp_path, registry, text(row(params={"metadata": {"extra_body": "[1]"}})), add_seed=True)
    assert "extra_body must hold a JSON object" in done.problems[0].message


BAD = [
    (b"{", "not JSON"),
    (b"[]", "expected a JSON object"),
    (b'{"a": NaN}', "not JSON"),
    (b'{"a": "\\ud800"}', "not JSON"),
    (b"\xff\xfe", "not JSON"),
    (json.dumps({"x": 1}).encode(), "responses_create_params"),
    (json.dumps(row(params={"max_tokens": 5})).encode(), "max_tokens"),
    (json.dumps(row(agent="mcqa_simple_agnt")).encode(), "did you mean 'mcqa_simple_agent'"),
    (json.dumps(row(options="A")).encode(), "row.options"),
    (json.dumps(row(_ng_task_index=-1)).encode(), "_ng_task_index"),
]


def test_every_bad_row_is_named_and_the_good_ones_stay(tmp_path: Path, registry: Registry) -> None:
    done, rows = expand(tmp_path, registry, text(row("first"), *(b for b, _ in BAD), row("last")))
    assert keys(rows) == [(0, 0), (1, 0)]
    assert [p.line for p in done.problems] == list(range(2, 2 + len(BAD)))
    for problem, (original, reason) in zip(done.problems, BAD, strict=True):
        assert reason in problem.message
        assert problem.original == original
    assert said(done)[0].startswith("rows.jsonl:2: not JSON")


def test_strict_publishes_nothing_and_leaves_the_former_file(tmp_path: Path, registry: Registry) -> None:
    former, _ = expand(tmp_path, registry, text(row("former")))
    before = former.path.read_bytes() if former.path else b""
    done, _ = expand(tmp_path, registry, text(row("new"), b"{"), strict=True)
    assert done.path is None
    assert [p.line for p in done.problems] == [2]
    assert (tmp_path / "run_materialized_inputs.jsonl").read_bytes() == before != b""
    assert [p.name for p in tmp_path.iterdir()] == ["run_materialized_inputs.jsonl"]


def test_no_good_row_publishes_nothing(tmp_path: Path, registry: Registry) -> None:
    done, _ = expand(tmp_path, registry, b"{\n")
    assert (done.path, done.rollouts, list(tmp_path.iterdir())) == (None, 0, [])


@pytest.mark.parametrize(
    "plan",
    [{"overrides": {"max_tokens": 1}}, {"overrides": {"temperature": "hot"}}, {"environment": "mcqaa"}, {"agent": "nobody"}],
)
def test_a_plan_that_fits_no_row(tmp_path: Path, registry: Registry, plan: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match=r"max_tokens: unknown key|temperature|did you mean 'mcqa'|unknown agent"):
        expand(tmp_path, registry, text(row()), **plan)


def test_a_directory_that_cannot_be_written(tmp_path: Path, registry: Registry) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SinkStoppedError, match="cannot write"):
        expand(tmp_path / "file", registry, text(row()))


def test_a_row_longer_than_any_prompt_is_one_problem() -> None:
    long = b'{"a":"' + b"x" * MAX_PROMPT_BYTES + b'"}'
    first, second, third = read_lines(io.BytesIO(b"{}\n" + long + b"\n{}\n"), "f")
    assert (first, third) == (Line(1, b"{}"), Line(3, b"{}"))
    assert isinstance(second, RowProblem)
    assert (second.line, len(second.original)) == (2, 64 << 10)


def test_task_rows_can_be_sent_as_one_prompt(registry: Registry) -> None:
    from rollstream.runfiles.expansion import Expansion

    expansion = Expansion(Plan(repeats=3), registry)
    found = list(expansion.rows(io.BytesIO(text(row("a"), row("a"))), "f"))
    assert [(t.first_rollout, t.repeats, t.task_index) for t in found if isinstance(t, TaskRow)] == [(0, 3, 0), (3, 3, 0)]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(questions=st.lists(st.integers(0, 5), min_size=1, max_size=12), repeats=st.integers(1, 3), end=st.booleans())
def test_indices_are_those_of_the_definition(
    tmp_path_factory: Any, registry: Registry, questions: list[int], repeats: int, end: bool
) -> None:
    """B5 written out: number of distinct texts before the first of its kind, and a count per task over the whole file."""
    data = text(*(row(str(q)) for q in questions))
    _, rows = expand(tmp_path_factory.mktemp("b5"), registry, data if end else data[:-1], repeats=repeats)
    order = list(dict.fromkeys(questions))
    expected = [(order.index(q), i, str(q)) for q in order for i in range(questions.count(q) * repeats)]
    assert [(*k, r["responses_create_params"]["input"]) for k, r in zip(keys(rows), rows, strict=True)] == expected
