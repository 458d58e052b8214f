"""The commands and programs of the documents, run as they stand on a real broker."""

import json
import re
import subprocess

import pytest
from support.examples import SESSIONS, Session, blocks, missing

from schemas.topics import SCORED

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


STAGES = ("admission", "agent", "tool", "verifier", "sink")


def outputs(page, printed):
    """Each output block of a page with what was printed since the one before."""
    said = ""
    for block in blocks(page):
        if block.kind == "session":
            said += printed[block.line]
        elif block.kind == "output":
            yield block, said
            said = ""


@pytest.fixture(params=SESSIONS)
def page(request):
    return request.param


def test_the_examples_of_a_page_run(page, kafka, topics, tmp_path):
    own_broker = page == "README.md"  # a newcomer's first hour includes starting one
    env = {} if own_broker else {"ROLLSTREAM_TOPICS__PREFIX": topics.prefix}
    session = Session(tmp_path, env, "" if own_broker else kafka.bootstrap_servers)
    printed = session.run(blocks(page, "session"), timeout_s=200)
    for block, said in outputs(page, printed):
        assert missing(block.text, said) == [], f"{block} shows what was not printed:\n{said}"
    check = CHECKS[page]
    check(tmp_path, printed)


def readme(folder, printed):
    """What the page says about the outcome, beyond its outputs."""
    said = "".join(printed.values())
    assert "8 rollouts, mean reward" in said
    assert "1.0 0.0" in said  # the environment's two verdicts
    lines = [json.loads(line) for name in ("first.jsonl", "again.jsonl") for line in (folder / name).read_text().splitlines()]
    assert len(lines) == 48
    assert len({(r["_ng_task_index"], r["_ng_rollout_index"]) for r in lines}) == 24
    flushed = [line for f in (folder / "results" / "first").glob("*.jsonl") for line in f.read_text().splitlines()]
    assert len(flushed) == 24
    bare = list((folder / "results" / "default").glob(f"{SCORED.name}-*.jsonl"))
    assert sum(len(f.read_text().splitlines()) for f in bare) == 2


def operations(folder, printed):
    said = "".join(printed.values())
    assert re.search(r"^agent\.in_flight +512 +flag$", said, re.MULTILINE)
    assert "live" in said.splitlines()
    assert "claims removed: 0" in said
    status = next(json.loads(line) for line in said.splitlines() if line.startswith('{"ledger"'))
    assert status["ledger"]["total"]["scored"] == 12
    assert {lag["stage"]: lag["group"].split(".")[-1] for lag in status["lag"]} == {s: s for s in STAGES}
    # Six workers and one that was restarted, each asked to end, and each ended by itself.
    assert said.count('"event": "ended"') == 7


def collection(folder, printed):
    """The flags are in the rows, and the profile has a line for each task."""
    rows = [json.loads(x) for x in (folder / "out/first_materialized_inputs.jsonl").read_text().splitlines()]
    params = rows[5]["responses_create_params"]
    assert (params["temperature"], params["top_p"], params["metadata"]) == (0.7, 0.95, {"extra_body": '{"seed":1}'})
    assert params["input"][0]["content"] == "Answer with a letter, in \\boxed{}."
    assert params["input"][1]["content"].startswith("What is 2 * 3? [{'A': '6'}")
    tasks = [json.loads(x) for x in (folder / "out/first_reward_profiling.jsonl").read_text().splitlines()]
    assert [t["num_rollouts"] for t in tasks] == [4, 4]
    one, merged = ((folder / f"{name}_aggregate_metrics.json").read_text() for name in ("out/first", "merged/all"))
    assert one == merged


def reverify(folder, printed):
    results = folder / "results"
    lines = {
        name: [json.loads(x) for x in (results / name).read_text().splitlines()] for name in ("rollouts.jsonl", "again.jsonl")
    }
    assert len(lines["rollouts.jsonl"]) == len(lines["again.jsonl"]) > 0
    assert (results / "whole.jsonl").read_bytes() == (results / "rollouts.jsonl").read_bytes()
    assert (results / "changes.jsonl").read_bytes() == b""  # the verifier is the same
    (second,) = [p for p in (results / "second").glob("*.jsonl") if not p.name.endswith("_failures.jsonl")]
    assert len(second.read_text().splitlines()) == len(lines["rollouts.jsonl"])
    said = "".join(printed.values())
    assert "scoring:second-look, by mcqa 1" in said


def observability(folder, printed):
    assert "".join(printed.values()).count('"event": "ended"') == 1


def nemo_gym(folder, printed):
    """What the reference's words did is in files of its formats; no secret is anywhere."""
    rows = [json.loads(x) for x in (folder / "results/mcqa.jsonl").read_text().splitlines()]
    assert len(rows) == 6
    assert {r["responses_create_params"]["temperature"] for r in rows} == {0.7}
    agents = {json.loads(x)["agent_ref"]["name"] for x in (folder / "results/mine.jsonl").read_text().splitlines()}
    assert agents == {"xstest_simple_agent", "xstest_wildguard_simple_agent", "lenient_agent", "patient_agent"}
    ours = [json.loads(x) for x in (folder / "results/ours.jsonl").read_text().splitlines()]
    assert {r["agent_ref"]["name"] for r in ours} == {"lenient_agent"}
    assert "sk-of-mine" not in "".join(printed.values()) + (folder / "pipeline.yaml").read_text()


CHECKS = {
    "docs/nemo-gym.md": nemo_gym,
    "docs/observability.md": observability,
    "README.md": readme,
    "docs/collection.md": collection,
    "docs/operations.md": operations,
    "docs/reverify.md": reverify,
}


def test_the_second_command_runs_style_types_and_tests(tmp_path):
    (block,) = blocks("README.md", "check")
    session = Session(tmp_path, {"UV_LOG": str(tmp_path / "uv.log")}, "unused")
    subprocess.run(["sh", "-c", block.text], cwd=tmp_path, env=session._env, check=True, timeout=30, capture_output=True)
    calls = (tmp_path / "uv.log").read_text()
    assert all(f"run --no-sync {tool}" in calls for tool in ("ruff check", "ruff format --check", "mypy", "pytest"))
