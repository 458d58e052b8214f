"""Two scorings compared (platform.md C5): changed rewards, their direction, verdicts; from files and as the command shows them."""

from __future__ import annotations

import json

import pytest
from support.stored import failure, result, row, write
from typer.testing import CliRunner

from rollstream.cli import app
from rollstream.diffing.compare import Comparison, Direction
from rollstream.diffing.scoring import Rollout, Scoring, read_files


def entries(folder, name, lines, failures=()):
    path = write(folder / f"{name}.jsonl", lines)
    write(folder / f"{name}_failures.jsonl", failures)
    return path


@pytest.fixture
def pair(tmp_path):
    """Every kind of change, once; and one line in each that the other does not have."""
    rows = [row(i) for i in range(9)]
    rewards = [(0, 1), (1, 0), (1, 1), (1, 1), (1, None), (None, 1), (None, None)]
    first = [result(rows[i], "x", a, verdict="A") for i, (a, _) in enumerate(rewards) if a is not None]
    stamp = {"id": "s", "verifier": "mcqa", "version": "2", "environment": "better", "run_id": "r", "source": "t/0/1"}
    second = [
        result(rows[i], "x", b, verdict="AB"[i == 3], _ng_scoring=stamp) for i, (_, b) in enumerate(rewards) if b is not None
    ]
    first.append(result(rows[7], "x", 1))
    second.append(result(rows[8], "x", 1, _ng_scoring=stamp))
    failed = [[failure(rows[i]) for i, ends in enumerate(rewards) if ends[which] is None] for which in (0, 1)]
    return entries(tmp_path, "a", first, failed[0]), entries(tmp_path, "b", second, failed[1])


def test_every_rollout_is_counted_once_and_every_change_is_listed(pair):
    first, second = (read_files(Scoring(p.name), p) for p in pair)
    comparison = Comparison(first, second)
    assert second.verifiers == {"mcqa 2"}
    changes = {c.rollout.task: c for c in comparison.changes()}
    assert {t: c.direction for t, c in changes.items()} == {
        0: Direction.UP, 1: Direction.DOWN, 3: Direction.VERDICT, 4: Direction.LOST, 5: Direction.RECOVERED,
    }  # fmt: skip
    assert (changes[0].delta, changes[1].delta, changes[4].delta) == (1.0, -1.0, None)
    assert changes[3].verdict == {"verdict": ("A", "B")}
    totals = comparison.totals()
    assert sum(t.compared + t.only_first + t.only_second for t in totals.values()) == 9
    better = totals["better"]
    assert (better.compared, better.only_second, better.rewarded, better.before, better.after) == (5, 1, 4, 3.0, 3.0)
    assert better.directions[Direction.SAME] == 1


def test_the_last_attempt_counts_and_a_result_more_than_a_failure(tmp_path):
    lines = [result(row(0), "x", 1, _ng_attempt_index=1), result(row(0), "x", 0)]
    failures = [failure(row(0), _ng_attempt_index=2), failure(row(1)) | {"outcome": "duplicate"}]
    found = read_files(Scoring("a"), entries(tmp_path, "a", lines, failures))
    assert {k: e.reward for k, e in found.entries.items()} == {Rollout("", 0, 0): 1.0}


def test_runs_tell_rollouts_apart_only_where_there_are_several(tmp_path):
    """Task 0 of one run is not task 0 of another; a file that names no run is compared with one that does."""

    def scoring(name, *runs):
        found = Scoring(name)
        for i, run in enumerate(runs):
            assert found.add(result(row(0), "x", i), run)
        return found

    one, other, both = scoring("a", ""), scoring("b", "r1"), scoring("c", "r1", "r2")
    assert Comparison(one, other).totals()["rescored_agent"].compared == 1
    totals = Comparison(other, both).totals()["rescored_agent"]
    assert (totals.compared, totals.only_second) == (1, 1)


def test_bad_lines_are_named_and_cost_one_line(tmp_path):
    lines = [result(row(0), "x", 1), b"nonsense", {"reward": 1.0}, result(row(1), "x", None), {**row(2), "reward": True}]
    path = entries(tmp_path, "a", lines)
    found = read_files(Scoring("a"), path)
    assert [(p.line, p.message.split(":")[0]) for p in found.problems] == [
        (2, "not JSON"),
        (3, "neither a result (rollout and finite reward) nor a failure"),
        (4, "neither a result (rollout and finite reward) nor a failure"),
    ]
    assert len(found.entries) == 2


def test_the_command_shows_a_table_and_writes_a_line_for_each_change(pair, tmp_path):
    first, second = map(str, pair)
    shown = CliRunner().invoke(app, ["diff", first, second, "-o", str(tmp_path / "out" / "d.jsonl")], env={"COLUMNS": "140"})
    assert shown.exit_code == 0, shown.output
    assert "second  " + second + ", by mcqa 2" in shown.output
    assert "verdict: A → B" in shown.output
    assert "judge_failed → 1" in shown.output
    lines = [json.loads(x) for x in (tmp_path / "out" / "d.jsonl").read_text().splitlines()]
    assert [(x["_ng_task_index"], x["direction"], x["reward"]) for x in lines] == [
        (0, "up", [0.0, 1.0]),
        (1, "down", [1.0, 0.0]),
        (3, "verdict", [1.0, 1.0]),
        (4, "lost", [1.0, None]),
        (5, "recovered", [None, 1.0]),
    ]
    assert lines[0]["source"] == ["", "t/0/1"]
    told = json.loads(CliRunner().invoke(app, ["diff", first, second, "--json"]).output)
    assert told["environments"]["better"]["up"] == 1
    assert told["scorings"][1] == {"name": second, "verifiers": ["mcqa 2"]}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["diff", "a.jsonl", "b.jsonl"], "a.jsonl: No such file"),
        (["diff", "scoring:../x", "live"], "cannot name a scoring"),
        (["reverify"], "name the stored results and --output"),
        (["reverify", "a.jsonl", "-o", "b.jsonl", "--run", "r"], "these belong to --log: --run"),
        (["reverify", "--log", "--limit", "3"], "--log reads the log: leave out --limit"),
        (["reverify", "--log", "--policy-version", "3"], "the events of the log carry no policy version"),
        (["reverify", "--log", "--since", "noon"], "--since noon: write a time such as"),
        (["reverify", "--log", "--failure-class", "bad"], "--failure-class bad: one of infrastructure, model"),
        (["reverify", "--log", "--resume"], "name it with --scoring"),
        (["reverify", "a.jsonl", "-o", "b.jsonl", "--resume", "--overwrite"], "exclude each other"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 2
    assert said in shown.output
