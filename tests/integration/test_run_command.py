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
