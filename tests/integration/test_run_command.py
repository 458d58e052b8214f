"""`rollstream run` as a person meets it: refusals, a stop before the start, a log that is gone."""

import json
import signal
import subprocess
import sys
import time

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


@pytest.fixture
def rollstream(kafka, topics, tmp_path):
    """Runs `rollstream run` with its output in `tmp_path`; the broker may be replaced, the run stopped at a moment."""

    def run(*arguments, broker=kafka.bootstrap_servers, prefix=topics.prefix, stop_when=None):
        line = [sys.executable, "-c", "from rollstream.cli import main; main()", "run", "-o", "out/r.jsonl"]
        line += ["-b", broker, "--prefix", prefix, "--set", f"topics.partitions={topics.partitions}", *arguments]
        process = subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if stop_when is not None:
            end = time.monotonic() + 60
            while process.poll() is None and not stop_when():
                assert time.monotonic() < end, "the moment to stop did not come"
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=90)
        return process.returncode, out, err

    return run


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_resume_on_another_log_dispatches_what_has_no_result(rollstream, topics, tmp_path):
    assert rollstream("-e", "mcqa", "--limit", "3")[0] == 0
    results = tmp_path / "out/r.jsonl"
    first = results.read_text().splitlines(keepends=True)
    results.write_text("".join(first[:1]))  # two results are lost with their log
    code, out, err = rollstream("-e", "mcqa", "--limit", "3", "--resume", prefix=f"{topics.prefix}.new")
    assert code == 0, err
    assert "the log in which this run began is gone" in err
    assert "2 dispatched = 2 scored" in out
    assert sorted(line["_ng_task_index"] for line in lines(results)) == [0, 1, 2]


def test_a_command_that_cannot_start_leaves_the_former_run_as_it_was(rollstream, tmp_path):
    assert rollstream("-e", "mcqa", "--limit", "3")[0] == 0
    before = {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()}
    drafted = lambda: any(tmp_path.glob("out/*.new"))  # noqa: E731 - its rows are read, and no broker answers
    code, _, err = rollstream("-e", "example_multi_step", broker="127.0.0.1:1", stop_when=drafted)
    assert code == 130
    assert "stopped before the run had begun" in err
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir() if not p.name.endswith(".new")} == before


def test_the_reasons_of_failures_are_shown_once(rollstream):
    refused = ("--model", "http://127.0.0.1:9/v1/m", "--set", "model.max_tries=1")
    code, out, _ = rollstream("-e", "mcqa", "--limit", "4", *refused)
    assert code == 3
    assert "4 × model (agent): model m at http://127.0.0.1:9/v1/responses: no connection" in out


ROW = {"options": [{"A": "one"}, {"B": "two"}], "expected_answer": "A"}


def reference_row(task, rollout=0):
    """A materialized row of the reference (platform.md A6, B1)."""
    params = {"input": [{"role": "user", "content": f"Question {task}?"}]}
    agent = {"agent_ref": {"type": "responses_api_agents", "name": "mcqa_simple_agent"}}
    return {"responses_create_params": params, **ROW, **agent, "_ng_task_index": task, "_ng_rollout_index": rollout}


def reference_result(task, rollout=0):
    """A line of its results (A7)."""
    content = [{"type": "output_text", "text": "\\boxed{A}", "annotations": []}]
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": content}
    response = {"id": "r", "object": "response", "created_at": 1.0, "model": "m", "output": [message], "usage": None}
    return {**reference_row(task, rollout), "response": response, "reward": 1.0, "extracted_answer": "A"}


def put(path, *found, tail=""):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in found) + tail)


def test_b6_a_run_of_the_reference_goes_on_here_and_then_as_ours(rollstream, tmp_path):
    out = tmp_path / "out"
    put(out / "r_materialized_inputs.jsonl", *(reference_row(t, i) for t in range(3) for i in range(2)))
    done = [reference_result(0, 1), reference_result(0, 0), reference_result(1, 0)]
    put(out / "r.jsonl", *done, tail='{"responses_create_params": {"in')
    failed = {"_ng_failure_class": "remote_agent_error"}
    put(
        out / "r_failures.jsonl",
        {**reference_row(1, 1), **failed},
        {**reference_row(2, 0), **failed, "_ng_failure_terminal": True},
    )
    code, text, err = rollstream("--resume")
    assert code == 0, err  # the terminal one failed in another run: the ledger knows of two rollouts, both scored
    assert "resuming: 6 inputs, 3 done, 2 prior failures, 1 terminal, 0 exhausted, 2 remaining" in err
    assert "2 dispatched = 2 scored" in text
    results = lines(out / "r.jsonl")
    assert results[:3] == done
    assert sorted((r["_ng_task_index"], r["_ng_rollout_index"]) for r in results[3:]) == [(1, 1), (2, 1)]
    assert {r["_ng_task_index"]: r.get("_ng_attempt_index") for r in results[3:]} == {1: 1, 2: None}
    (agent,) = json.loads((out / "r_aggregate_metrics.json").read_text())
    assert (agent["completeness"]["expected"], agent["completeness"]["scored"]) == (6, 5)  # old plus new
    assert agent["completeness"]["failed"] == {"remote_agent_error": 1}
    code, _, err = rollstream("--resume")  # now it is ours
    assert code == 0, err
    assert "resuming: 6 inputs, 5 done" in err
    assert len(lines(out / "r.jsonl")) == 5


def test_b1_to_b8_flags_become_rows(rollstream, tmp_path):
    source = [{**ROW, "question": f"Is it {i}?", "responses_create_params": {"temperature": 1}} for i in range(2)]
    put(tmp_path / "in" / "rows.jsonl", *source)
    (tmp_path / "in" / "p.yaml").write_text("system: Answer.\nuser: '{question}'\n")
    skill = tmp_path / "in" / "skills" / "sums"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: sums\nmetadata: {version: 2}\n---\n")
    flags = ["--input", "in/rows.jsonl", "--agent", "mcqa_simple_agent", "--search-dir", "in", "--prompt-config", "p.yaml"]
    flags += ["--skills", "skills", "-n", "mcqa_simple_agent=2,_default=1", "--seeds", "--temperature", "0.5"]
    flags += ["responses_create_params.top_p=null", "--min-completeness", "100"]
    code, _, err = rollstream(*flags)
    assert code == 0, err
    rows = lines(tmp_path / "out/r_materialized_inputs.jsonl")
    assert [(r["_ng_task_index"], r["_ng_rollout_index"]) for r in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    expected = [{"role": "system", "content": "Answer."}, {"role": "user", "content": "Is it 1?"}]
    assert rows[3]["responses_create_params"] == {
        "temperature": 0.5,
        "top_p": None,
        "input": expected,
        "metadata": {"extra_body": '{"seed":1}'},
    }
    results = lines(tmp_path / "out/r.jsonl")
    assert [r["skills_ref"]["skills"] for r in results] == [[{"name": "sums", "description": None, "version": "2"}]] * 4
    code, _, err = rollstream(*flags, "--max-output-tokens", "9", "--resume")
    assert code == 2
    assert "  overrides.max_output_tokens: none → 9\n" in err


def test_b9_without_metrics(rollstream, tmp_path):
    assert rollstream("-e", "mcqa", "--limit", "2")[0] == 0
    assert (tmp_path / "out/r_aggregate_metrics.json").exists()
    code, text, err = rollstream("-e", "mcqa", "--limit", "2", "--no-aggregate", "--resume")
    assert code == 0, err
    assert "metrics" not in text
    assert not (tmp_path / "out/r_aggregate_metrics.json").exists()
