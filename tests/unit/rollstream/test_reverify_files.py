"""Re-verification from files (platform.md C1-C4)."""

from __future__ import annotations

import dataclasses
import json

import pytest
from support.stored import AGENT, failure, read, registry, result, row, said, write

from rollstream.reverify.files import reverify_files
from rollstream.reverify.guard import ReverifyError
from rollstream.reverify.output import Existing
from rollstream.reverify.request import FilesRequest
from rollstream.runfiles.readers import JsonLines
from rollstream.scripted import Fault, ScriptedModel
from rollstream.settings.model import Model, OtherModel, Settings
from services.sink.checkpoint import Checkpoint, read_checkpoint
from services.sink.disk import Disk
from services.sink.paths import RunPaths
from services.verifier_worker.judge_calls import JUDGE_CALLS

REWARDS = {0: (1, 1), 1: (0, 1), 2: (0,)}


class Stored:
    """A stored run in a folder, and the command over it."""

    def __init__(self, folder):
        self.folder = folder
        self.paths = RunPaths.of(folder / "run.jsonl")
        self.out = RunPaths.of(folder / "again.jsonl")
        self.settings = Settings(verifier={"processes": 1})

    def put(self, rows, results=(), failures=None, tail=b""):
        write(self.paths.materialized, rows)
        write(self.paths.results, results, tail)
        if failures is not None:
            write(self.paths.failures, failures)

    def golden(self):
        """Rewards by task (1,1), (0,1), (0); as they were stored, all 0.5."""
        rows = [row(task, i) for task, rewards in REWARDS.items() for i in range(len(rewards))]
        words = [str(reward) for rewards in REWARDS.values() for reward in rewards]
        self.put(rows, [result(r, f"so {w}", 0.5) for r, w in zip(rows, words, strict=True)])

    def request(self, **options):
        return FilesRequest(self.paths.results, options.pop("output", self.out.results), **options)

    async def verify(self, **options):
        return await reverify_files(self.request(**options), self.settings, registry())


@pytest.fixture
def stored(tmp_path):
    return Stored(tmp_path)


def key(line):
    return line["_ng_task_index"], line["_ng_rollout_index"]


def rewards(path):
    return {key(line): line["reward"] for line in read(path)}


async def test_c1_new_rewards_a_new_sidecar_and_new_aggregates_with_the_golden_numbers(stored):
    """C1, with the numbers of B10's Golden."""
    stored.golden()
    before = stored.paths.results.read_bytes()
    report = await stored.verify(scoring="s1")
    tally = report.tallies["rescored"]
    assert (report.scored, report.failed, tally.up, tally.down, tally.same) == (5, 0, 3, 2, 0)
    assert rewards(stored.out.results) == {(t, i): float(r) for t, rs in REWARDS.items() for i, r in enumerate(rs)}
    assert stored.out.failures.read_bytes() == b""
    (found,) = json.loads(stored.out.aggregate.read_text())
    assert found["agent_metrics"]["mean/reward"] == pytest.approx(0.6)
    assert found["agent_metrics"]["std/reward"] == pytest.approx(0.5477225575051662)
    assert found["agent_metrics"]["median/reward"] == 1.0
    assert (
        found["completeness"].items()
        >= {"expected": 5, "scored": 5, "failed": {}, "missing": 0, "masked": 0, "complete": True}.items()
    )
    assert stored.paths.results.read_bytes() == before
    record = json.loads(stored.out.run.read_text())
    assert record["outcomes"] == {"scored": 5, "failed": 0, "copied": 0}
    assert record["arguments"]["verifiers"] == {"rescored": {"verifier": "rescored", "version": "7"}}


async def test_c5_a_line_says_who_scored_it_and_keeps_what_the_rollout_said(stored):
    source = row(3, 1, kept={"a": [1]}, _ng_rollout_id="mine")
    old = result(
        source, "half \ud83d so 2", 1.0, said="old", stale="old verifier's", _ng_attempt_index=2, ng_trajectory={"t": 1}
    )
    stored.put([source], [old])
    await stored.verify(scoring="s1")
    (line,) = read(stored.out.results)
    own = {"id": "s1", "verifier": "rescored", "version": "7", "environment": "rescored", "run_id": "default"}
    assert line.pop("_ng_scoring") == {**own, "source": "run.jsonl:1"}
    assert 0 <= line.pop("draw") < 1
    assert line == {
        **source,
        "response": old["response"],
        "reward": 2.0,
        "said": "2",
        "_ng_attempt_index": 2,
        "ng_trajectory": {"t": 1},
    }


async def test_the_same_random_numbers_are_drawn_as_in_the_stored_run(stored):
    stored.golden()
    await stored.verify()
    await stored.verify(output=stored.folder / "third.jsonl")
    draws = [{key(line): line["draw"] for line in read(p)} for p in (stored.out.results, stored.folder / "third.jsonl")]
    assert draws[0] == draws[1]
    assert len(set(draws[0].values())) == 5


async def test_a_verifier_that_fails_costs_its_rollout_and_the_sidecar_says_why(stored):
    """C1 and A9: a failure is a line of the sidecar, never a reward of 0."""
    doing = ("ok", "raise", "no_judge", "refuse", "ok")
    rows = [row(i, verify_does=what) for i, what in enumerate(doing)]
    stored.put(rows, [result(r, "so 1", 1.0) for r in rows])
    report = await stored.verify()
    assert rewards(stored.out.results) == {(0, 0): 1.0, (4, 0): 1.0}
    failed = {key(line)[0]: line for line in read(stored.out.failures)}
    assert {t: line["_ng_failure_class"] for t, line in failed.items()} == {1: "verifier", 2: "judge_failed", 3: "data"}
    assert failed[2]["_ng_failure_judge_error"] == "the judge is away"
    assert (failed[2]["reward"], failed[2]["stage"], failed[2]["place"]) == (0.0, "reverify", f"{stored.paths.results}:3")
    assert failed[3]["_ng_failure_terminal"] is True
    assert all(line["response"] == said("so 1") for line in failed.values())
    assert report.tallies["rescored"].failed == {"verifier": 1, "judge_failed": 1, "data": 1}


# --- bad input ---------------------------------------------------------------------------------------------------------


async def test_a_bad_line_costs_one_line_and_is_named_by_file_and_number(stored):
    """C1: a rollout without its row is an error; so are the others, each told, none silent."""
    rows = [row(i) for i in range(6)]
    good = [result(r, "so 1", 0.0) for r in rows]
    stray, silent = result(row(99), "so 1", 1.0), {**rows[2], "reward": 1.0}
    lines = [good[0], b"{not json", b"[1]", stray, silent, {"reward": 1.0}, good[0], good[1], good[5]]
    stored.put([*rows[:5], row(5), row(5, bonus=9), b"[]", {"no": "key"}], lines, tail=b'{"_ng_task_in')
    report = await stored.verify()
    assert rewards(stored.out.results) == {(0, 0): 1.0, (1, 0): 1.0}
    told = [str(p).removeprefix(f"{stored.folder}/") for p in report.problems]
    inputs, results = "run_materialized_inputs.jsonl", "run.jsonl"
    assert [text.split(" ")[0] for text in told] == [
        f"{inputs}:8:",
        f"{inputs}:9:",
        *(f"{results}:{n}:" for n in (2, 3, 4, 5, 6, 7, 9)),
    ]
    wanted = (
        "JSON object",
        "no rollout",
        "not JSON",
        "JSON object",
        "no row in",
        "no response",
        "no rollout",
        "already",
        "lines 6 and 7",
    )
    assert [w for w, text in zip(wanted, told, strict=True) if w not in text] == []
    assert [(t.number, t.size) for t in report.torn] == [(10, 13)]


async def test_strict_and_files_with_nothing_in_common_stop_before_any_work(stored):
    stored.put([row(0)], [result(row(0), "so 1", 1.0), b"nonsense"])
    with pytest.raises(ReverifyError, match=r"nothing was verified: 1 lines cannot be used\n.*run\.jsonl:2: not JSON"):
        await stored.verify(strict=True)
    stored.put([row(7)], [result(row(0), "so 1", 1.0)])
    with pytest.raises(ReverifyError, match=r"run\.jsonl:1: rollout 0:0 has no row in"):
        await stored.verify()
    assert not stored.out.results.exists()


async def test_an_empty_file_makes_an_empty_one(stored):
    stored.put([row(0)])
    report = await stored.verify()
    assert (report.scored, report.failed, stored.out.results.read_bytes()) == (0, 0, b"")
    assert not stored.out.aggregate.exists()


async def test_missing_files_are_named(stored):
    with pytest.raises(ReverifyError, match=r"run_materialized_inputs\.jsonl does not exist; name the rows .* with --inputs"):
        await stored.verify()
    write(stored.paths.materialized, [row(0)])
    with pytest.raises(FileNotFoundError):
        await stored.verify()


async def test_c1_routes_by_the_agent_or_by_what_is_named(stored):
    nobody = {k: v for k, v in row(0).items() if k != "agent_ref"}
    stored.put([nobody], [result(nobody, "so 1", 0.0)])
    with pytest.raises(ReverifyError, match=r"run\.jsonl:1: its row names no agent \(agent_ref\); name --environment"):
        await stored.verify()
    await stored.verify(environment="rescored")
    assert rewards(stored.out.results) == {(0, 0): 1.0}
    stranger = row(0) | {"agent_ref": {"name": "rescored_agnet"}}
    stored.put([stranger], [result(stranger, "so 1", 0.0)])
    with pytest.raises(ReverifyError, match=r"run\.jsonl:1: unknown agent 'rescored_agnet'; did you mean 'rescored_agent'"):
        await stored.verify(existing=Existing.OVERWRITE)


# --- C2: what is there already -----------------------------------------------------------------------------------------


async def test_c2_nothing_is_appended_or_cleared_unasked(stored):
    stored.golden()
    stored.out.results.write_text("precious\n")
    with pytest.raises(ReverifyError, match=r"again\.jsonl exists: --resume goes on with it, --overwrite starts it anew"):
        await stored.verify()
    with pytest.raises(ReverifyError, match="has no record of what made it"):
        await stored.verify(existing=Existing.RESUME)
    assert stored.out.results.read_text() == "precious\n"
    with pytest.raises(ReverifyError, match="is what is re-verified; name another file"):
        await stored.verify(output=stored.paths.results, existing=Existing.OVERWRITE)
    with pytest.raises(ReverifyError, match="goes with --judge-failed-only alone"):
        await stored.verify(existing=Existing.APPEND)
    write(stored.out.failures, [failure(row(0))])
    await stored.verify(existing=Existing.OVERWRITE)
    assert len(rewards(stored.out.results)) == 5
    assert stored.out.failures.read_bytes() == b""


async def test_c2_limit_counts_what_is_done_and_resume_does_the_rest(stored):
    stored.golden()
    first = await stored.verify(limit=2)
    assert (first.scored, first.skipped) == (2, 0)
    kept = stored.out.results.read_bytes()
    with stored.out.results.open("ab") as file:
        file.write(b'{"torn')
    second = await stored.verify(limit=4, existing=Existing.RESUME)
    assert (second.scored, second.skipped, [t.number for t in second.torn]) == (2, 2, [3])
    assert stored.out.results.read_bytes().startswith(kept)
    third = await stored.verify(existing=Existing.RESUME)
    assert (third.scored, third.skipped) == (1, 4)
    assert len(read(stored.out.results)) == 5
    with pytest.raises(ReverifyError, match="was made from other files or by other verifiers"):
        await stored.verify(existing=Existing.RESUME, environment="ranked", force=True, output=stored.out.results)


async def test_disable_aggregation(stored):
    stored.golden()
    await stored.verify(disable_aggregation=True)
    assert not stored.out.aggregate.exists()


# --- C3: the guard -----------------------------------------------------------------------------------------------------


async def test_c3_anything_but_stateless_stops_before_any_work_and_force_marks_the_name(stored):
    source = row(0) | {"agent_ref": {"name": "faulty_agent"}}
    stored.put([source], [result(source, "so 1", 0.0)])
    with pytest.raises(ReverifyError, match=r"faulty \(mode unknown: it does not say whether it can\)"):
        await stored.verify()
    assert not stored.out.results.exists()
    report = await stored.verify(force=True)
    assert report.paths.results.name == "unsafe_again.jsonl"
    assert rewards(report.paths.results) == {(0, 0): 1.0}
    stateful = row(0, initial_count=0, expected_count=0) | {"agent_ref": {"name": "example_session_state_mgmt_simple_agent"}}
    stored.put([stateful], [result(stateful, "so 1", 0.0)])
    with pytest.raises(ReverifyError, match=r"mode unsupported: a rollout's state is not in the files, only in the log"):
        await stored.verify()


# --- C4: what failed for its judge -------------------------------------------------------------------------------------


def judged(stored):
    """Two results, two rollouts whose judge was away (one of them twice), one that failed otherwise, one that was judged later."""
    rows = [row(i) for i in range(6)]
    results = [result(rows[0], "so 1", 0.25), result(rows[5], "so 1", 0.75)]
    failures = [failure(rows[1], text=None), failure(rows[1]), failure(rows[2]), failure(rows[3], "model"), failure(rows[5])]
    stored.put(rows, results, failures)
    return rows, results


async def test_c4_recovers_judge_failures_and_leaves_results_as_they_are(stored):
    _, results = judged(stored)
    report = await stored.verify(judge_failed_only=True)
    assert (report.scored, report.copied, report.failed) == (2, 2, 0)
    assert any("two configurations" in w for w in report.warnings)
    lines = stored.out.results.read_bytes().splitlines()
    assert [json.loads(x) for x in lines[:2]] == results
    assert rewards(stored.out.results) == {(0, 0): 0.25, (5, 0): 0.75, (1, 0): 1.0, (2, 0): 1.0}
    assert [key(x)[0] for x in read(stored.out.failures)] == [3]
    (found,) = json.loads(stored.out.aggregate.read_text())
    assert found["completeness"]["failed"] == {"model": 1}
    assert found["completeness"]["missing"] == 1
    again = await stored.verify(judge_failed_only=True, existing=Existing.RESUME)
    assert (again.scored, again.copied, again.skipped) == (0, 0, 2)
    assert len(read(stored.out.results)) == 4


async def test_c4_the_guard_is_left_out(stored):
    source = row(0) | {"agent_ref": {"name": "faulty_agent"}}
    stored.put([source], [], [failure(source)])
    report = await stored.verify(judge_failed_only=True)
    assert (report.paths.results.name, report.scored) == ("again.jsonl", 1)


async def test_c4_append_adds_to_the_run_itself_and_does_nothing_the_second_time(stored):
    rows, _ = judged(stored)
    write(stored.paths.failures, [*read(stored.paths.failures), failure(row(4, verify_does="no_judge"))])
    write(stored.paths.materialized, [*rows[:4], row(4, verify_does="no_judge"), rows[5]])
    before = stored.paths.results.read_bytes()
    failures = stored.paths.failures.read_bytes()
    sizes = len(before), len(failures)
    Checkpoint("r", *sizes).write(stored.paths.checkpoint, Disk())
    options = {"judge_failed_only": True, "existing": Existing.APPEND, "output": stored.paths.results}
    report = await stored.verify(**options)
    assert (report.scored, report.failed, report.copied) == (2, 1, 0)
    after = stored.paths.results.read_bytes()
    assert after.startswith(before)
    assert len(rewards(stored.paths.results)) == len(read(stored.paths.results)) == 4
    assert stored.paths.failures.read_bytes() == failures, "its line is there already"
    assert read_checkpoint(stored.paths.checkpoint) == Checkpoint("r", len(after), len(failures))
    again = await stored.verify(**options)
    assert (again.scored, again.failed) == (0, 1)
    assert stored.paths.results.read_bytes() == after
    with stored.paths.results.open("ab") as file:
        file.write(b"{}\n")
    with pytest.raises(ReverifyError, match="Resume that run first"):
        await stored.verify(**options)


async def test_c4_append_needs_something_to_append_to(stored):
    judged(stored)
    with pytest.raises(ReverifyError, match="there is nothing to append to"):
        await stored.verify(judge_failed_only=True, existing=Existing.APPEND)


async def test_c4_a_run_without_a_sidecar_has_nothing_to_recover(stored):
    stored.golden()
    report = await stored.verify(judge_failed_only=True)
    assert (report.scored, report.copied) == (0, 5)
    assert stored.out.results.read_bytes() == stored.paths.results.read_bytes()


async def test_the_judge_is_asked_again_or_its_recorded_reply_is_used(stored):
    """judge.md §8.2: a reply is used again for the same question alone."""
    rows = [row(i, verify_does="judge") for i in range(3)]
    stored.put(rows, [result(r, f"answer {i}", 0.0) for i, r in enumerate(rows)])
    async with ScriptedModel(record=True) as judge:
        other = OtherModel(url=judge.base_url, name="scripted")
        stored.settings = Settings(model=Model(url=judge.base_url), models={"judge": other})
        await stored.verify()
        assert len(judge.seen) == 3
        lines = read(stored.out.results)
        assert all(len(line[JUDGE_CALLS]) == 1 for line in lines)
        changed = [{**lines[0], "response": said("another 5")}, *lines[1:]]
        write(stored.paths.results, changed)
        report = await stored.verify(reuse_judge_calls=True, output=stored.folder / "third.jsonl")
        assert len(judge.seen) == 4
    again = {key(line)[0]: line for line in read(stored.folder / "third.jsonl")}
    reused = {task: line[JUDGE_CALLS][0]["reused"] for task, line in again.items()}
    assert reused == {key(lines[0])[0]: False, key(lines[1])[0]: True, key(lines[2])[0]: True}
    assert any("policy are the same endpoint" in w for w in report.warnings)


async def test_a_judge_that_is_away_leaves_rollouts_to_be_recovered(stored):
    """D10, then C4."""
    rows = [row(i, verify_does="judge") for i in range(2)]
    stored.put(rows, [result(r, "so 1", 0.0) for r in rows])
    async with ScriptedModel(faults=[Fault(status=400)] * 2) as judge:
        other = OtherModel(url=judge.base_url, name="scripted", max_tries=1)
        stored.settings = Settings(models={"judge": other})
        report = await stored.verify()
        assert report.tallies["rescored"].failed == {"judge_failed": 2}
        request = FilesRequest(
            stored.out.results, stored.folder / "third.jsonl", stored.paths.materialized, judge_failed_only=True
        )
        recovered = await reverify_files(request, stored.settings, registry())
    assert (recovered.scored, recovered.failed) == (2, 0)


# --- groups ------------------------------------------------------------------------------------------------------------


def group(task, count):
    return [row(task, i) | {"agent_ref": {"name": "ranked_agent"}} for i in range(count)]


async def test_groups_are_scored_as_wholes(stored):
    rows = [*group(0, 4), *group(1, 3)]
    stored.put(rows, [result(r, "x" * (r["_ng_rollout_index"] + 1), 9.0) for r in rows])
    report = await stored.verify(limit=5)
    assert report.scored == 7, "a group that begins within the limit is taken whole"
    assert rewards(stored.out.results) == {key(r): float(r["_ng_rollout_index"]) for r in rows}
    assert not any("_ng_group" in line for line in read(stored.out.results))


async def test_a_group_that_is_not_whole_says_so_and_a_resumed_one_is_scored_with_those_that_are_done(stored):
    rows = group(0, 4)
    stored.put(rows, [result(r, "x" * (r["_ng_rollout_index"] + 1), 9.0) for r in rows[:3]])
    await stored.verify()
    lines = read(stored.out.results)
    missing = {"3": "no response in the stored files"}
    assert [line["_ng_group"] for line in lines] == [{"size": 4, "scored": 3, "missing": missing}] * 3
    write(stored.out.results, lines[:2])
    await stored.verify(existing=Existing.RESUME)
    assert rewards(stored.out.results) == {(0, 0): 0.0, (0, 1): 1.0, (0, 2): 2.0}


async def test_c4_a_recovered_member_is_scored_among_its_siblings(stored):
    rows = group(0, 3)
    results = [result(r, "x" * (r["_ng_rollout_index"] + 1), 9.0) for r in rows[:2]]
    stored.put(rows, results, [failure(rows[2], text="xxxx")])
    await stored.verify(judge_failed_only=True)
    lines = read(stored.out.results)
    assert lines[:2] == results
    assert (lines[2]["reward"], sorted(lines[2]["group"]), "_ng_group" in lines[2]) == (2.0, [0, 1, 2], False)


# --- in other processes ------------------------------------------------------------------------------------------------

HEAVY = """
import os, time
from environments.environment import Environment, Reverify, Task, Verdict

class Dangerous(Environment):
    reverify = Reverify.STATELESS

    class Task(Task):
        how: str = "ok"

    def verify(self, task, response, state, context):
        if task.how == "die":
            os._exit(3)
        if task.how == "hang":
            time.sleep(600)
        return Verdict(1.0, pid=os.getpid())
"""

CONFIG = "name: dangerous\ndescription: ''\ndomain: tests\nvariants:\n  dangerous: {agent: {name: dangerous_agent}}\n"


@pytest.fixture(name="dangerous")
def _dangerous(tmp_path, monkeypatch):
    package, metadata = tmp_path / "somebodys_dangerous", tmp_path / "somebodys_dangerous-1.0.dist-info"
    for path in (package, metadata):
        path.mkdir()
    (package / "__init__.py").touch()
    (package / "environment.py").write_text(HEAVY)
    (package / "config.yaml").write_text(CONFIG)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys-dangerous\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[rollstream.environments]\ndangerous = somebodys_dangerous\n")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.timeout(120)
async def test_a_verifier_that_kills_or_holds_up_its_process_costs_its_rollout_alone(dangerous, stored):
    doing = ["ok", "ok", "die", "ok", "hang", "ok"]
    rows = [row(i, how=how) | {"agent_ref": {"name": "dangerous_agent"}} for i, how in enumerate(doing)]
    stored.put(rows, [result(r, "so 1", 0.0) for r in rows])
    deadlines = stored.settings.deadlines.model_copy(update={"verify_timeout_s": 6.0})
    stored.settings = stored.settings.model_copy(update={"deadlines": deadlines})
    await stored.verify()
    failed = {key(line)[0]: (line["_ng_failure_class"], line["message"]) for line in read(stored.out.failures)}
    assert {task: kind for task, (kind, _) in failed.items()} == {2: "verifier", 4: "timeout"}, failed
    assert set(rewards(stored.out.results)) == {(0, 0), (1, 0), (3, 0), (5, 0)}


async def test_a_scoring_can_be_scored_again(stored):
    """Its rows lie beside the run that it was made of; its record says where."""
    stored.golden()
    await stored.verify()
    request = dataclasses.replace(stored.request(), rollouts=stored.out.results, output=stored.folder / "third.jsonl")
    report = await reverify_files(request, stored.settings, registry())
    assert (report.scored, report.tallies["rescored"].same) == (5, 5)
    assert len(list(JsonLines(stored.folder / "third.jsonl"))) == 5
    assert AGENT["name"] in stored.out.aggregate.read_text()
