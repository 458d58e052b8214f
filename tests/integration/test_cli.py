import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from rollstream.ledger import read_ledger
from rollstream.ledger.ledger import Counts
from rollstream.trainer import ScoredRollouts
from schemas import headers, jsontext
from schemas.identity import RolloutRef
from schemas.topics import SCORED

pytestmark = pytest.mark.integration

GOOD = {
    "responses_create_params": {"input": [{"role": "user", "content": "2+2? A) 3 B) 4"}]},
    "agent_ref": {"type": "responses_api_agents", "name": ""},
    "question": "2+2?",
    "options": [{"A": "3"}, {"B": "4"}],
    "expected_answer": "B",
}


@pytest.fixture(scope="module")
def agent():
    from environments.registry import Registry

    (entry,) = [e for e in Registry.load().entries if e.manifest.name == "mcqa"]
    return next(iter(entry.manifest.variants.values())).agent.name


@pytest.fixture
def cli(kafka, topics, tmp_path):
    """Runs the program as a user would, in a directory of its own."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ROLLSTREAM_") or k == "ROLLSTREAM_CACHE_DIR"}

    async def start(*args, prefix=topics.prefix):
        where = ["--bootstrap-servers", kafka.bootstrap_servers, "--prefix", prefix]
        program = [sys.executable, "-c", "from rollstream.cli import main; main()", *args, *where]
        return await asyncio.create_subprocess_exec(*program, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=tmp_path, env=clean)

    async def run(*args, stdin=b"", **options):
        process = await start(*args, **options)
        try:
            async with asyncio.timeout(40):
                out, err = await process.communicate(stdin)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode, out.decode(), err.decode()

    run.start = start
    return run


def rows(path: Path, agent, *changes):
    lines = [c if isinstance(c, bytes) else jsontext.dumps({**GOOD, "agent_ref": {"name": agent}, **c}) for c in changes]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


async def score(kafka, topics, n, run="r"):
    producer = AIOKafkaProducer(**kafka.kwargs())
    await producer.start()
    for i in range(n):
        ref = RolloutRef(run, f"t{i}", i, 0)
        line = {
            "reward": 0.5,
            "_ng_task_index": i,
            "_ng_rollout_index": 0,
            "response": {"output": [{"content": "said\x1b[2J"}]},
        }
        found = headers.of(ref, (headers.ENVIRONMENT, b"mcqa"))
        await producer.send_and_wait(topics.name(SCORED), jsontext.dumps(line), b"k", headers=found)
    await producer.stop()


async def test_produce_sends_the_good_rows_and_names_the_bad_ones(cli, kafka, topics, agent, tmp_path):
    file = rows(
        tmp_path / "rows.jsonl", agent, {}, b"{not json", {"responses_create_params": {"input": "x", "max_tokens": 1}}, {"n": 2}
    )
    code, out, err = await cli("produce", file.name, "--run", "r1", "--repeats", "3")
    assert code == 3
    assert out == "r1\n"
    lines = err.splitlines()
    assert lines[0].startswith("rows.jsonl:2: not JSON")
    assert lines[1] == "rows.jsonl:3: responses_create_params.max_tokens: unknown key"
    assert lines[2] == "sent 2 rows (6 rollouts) as run r1; 2 rows refused"
    ledger = await read_ledger(kafka, topics, run="r1")
    assert ledger.total == Counts(dispatched=8, failed=2, in_flight=6)
    assert ledger.by_class == {"data": 2}
    assert ledger.balanced
    # Again: nothing is new, neither the good nor the bad.
    await cli("produce", file.name, "--run", "r1", "--repeats", "3")
    assert (await read_ledger(kafka, topics, run="r1")).total == ledger.total


async def test_strict_sends_nothing_when_one_row_is_bad(cli, kafka, topics, agent, tmp_path):
    file = rows(tmp_path / "rows.jsonl", agent, {}, b"[]")
    for args, stdin in (((file.name,), b""), (("-",), file.read_bytes())):
        code, _, err = await cli("produce", *args, "--run", "r1", "--strict", stdin=stdin)
        assert code == 3
        assert err.splitlines()[-1] == "1 rows refused; nothing was sent"
    assert (await read_ledger(kafka, topics)).total == Counts()
    good = rows(tmp_path / "good.jsonl", agent, {}, {"n": 2})
    code, _, _ = await cli("produce", "-", "--run", "r1", "--strict", stdin=good.read_bytes())
    assert code == 0
    assert (await read_ledger(kafka, topics)).total.dispatched == 2


async def test_produce_reads_standard_input_and_makes_up_a_run(cli, kafka, topics, tmp_path):
    line = jsontext.dumps({k: v for k, v in GOOD.items() if k != "agent_ref"})
    code, out, err = await cli(
        "produce", "-", "--environment", "mcqa", "--limit", "1", stdin=line + b"\n" + line.replace(b"B", b"A")
    )
    assert (code, err) == (0, f"sent 1 rows (1 rollouts) as run {out.strip()}\n")
    assert out.startswith("run-")
    assert (await read_ledger(kafka, topics, run=out.strip())).total == Counts(dispatched=1, in_flight=1)


async def test_tail_shows_lines_and_json(cli, kafka, topics):
    await score(kafka, topics, 3)
    await score(kafka, topics, 1, run="other")
    code, out, err = await cli("tail", "--from", "earliest", "--limit", "3", "--run", "r")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) == 3
    assert all(line.split()[1] == "mcqa" and line.endswith("said\\x1b[2J") for line in lines)
    code, out, _ = await cli("tail", "--from", "earliest", "--limit", "4", "--json")
    assert sorted(json.loads(line)["_ng_task_index"] for line in out.splitlines()) == [0, 0, 1, 2]


async def test_tail_ends_cleanly_at_ctrl_c(cli, kafka, topics):
    await score(kafka, topics, 1)
    process = await cli.start("tail", "--from", "earliest")
    async with asyncio.timeout(30):
        assert b"mcqa" in await process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
    assert (process.returncode, out, err) == (130, b"", b"")


async def test_tail_shows_what_comes_while_it_waits(cli, kafka, topics):
    process = await cli.start("tail", "--from", "earliest", "--limit", "1")
    waiting = asyncio.ensure_future(process.communicate())
    await score(kafka, topics, 1)
    async with asyncio.timeout(30):
        out, err = await waiting
    assert process.returncode == 0
    assert b"r/0-0" in out
    assert err == b""


async def test_status_is_the_ledger_and_the_lag(cli, kafka, topics, agent, tmp_path):
    rows(tmp_path / "rows.jsonl", agent, {}, b"bad")
    await cli("produce", "rows.jsonl", "--run", "r1", "--repeats", "2")
    code, out, err = await cli("status", "--run", "r1")
    assert (code, err) == (0, "")
    assert "3 dispatched = 0 scored + 1 failed + 0 cancelled + 0 expired + 2 in flight" in out
    assert "mcqa" in out
    assert "oldest in flight: prompt" in out
    code, out, _ = await cli("status", "--run", "r1", "--json", "--check")
    assert code == 3
    value = json.loads(out)
    assert value["ledger"]["total"]["in_flight"] == 2
    assert value["ledger"]["balanced"] is True
    lag = {(x["stage"], x["topic"]): x["lag"] for x in value["lag"]}
    assert lag["admission", f"{topics.prefix}.prompts"] == 1
    assert lag["sink", f"{topics.prefix}.failures"] == 1


async def test_a_broker_that_is_not_there_is_one_line(tmp_path):
    program = [sys.executable, "-c", "from rollstream.cli import main; main()", "status", "-b", "127.0.0.1:1"]
    process = await asyncio.create_subprocess_exec(*program, stdout=PIPE, stderr=PIPE, cwd=tmp_path)
    out, err = await process.communicate()
    assert (process.returncode, out) == (1, b"")
    assert err.startswith(b"rollstream: ")
    assert b"127.0.0.1:1" in err
    assert err.count(b"\n") == 1


async def test_a_topic_that_is_not_there_is_one_line(cli):
    for args in (("tail",), ("status",)):
        code, out, err = await cli(*args, prefix="nowhere")
        assert (code, out) == (1, "")
        assert err.startswith("rollstream: there is no topic ")
        assert "nowhere.scored-rollouts" in err
        assert err.count("\n") == 1


@pytest.mark.timeout(120)
async def test_the_local_broker_is_started_used_and_stopped(tmp_path):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ROLLSTREAM_") or k == "ROLLSTREAM_CACHE_DIR"}

    async def run(*args):
        program = [sys.executable, "-c", "from rollstream.cli import main; main()", *args]
        process = await asyncio.create_subprocess_exec(
            *program, "--set", f"broker.data_dir={tmp_path / 'data'}", stdout=PIPE, stderr=PIPE, cwd=tmp_path, env=clean
        )
        out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    assert (await run("broker", "status"))[0] == 1
    code, out, err = await run("broker", "start", "--json")
    try:
        assert code == 0, err
        servers = json.loads(out)["bootstrap_servers"]
        code, again, err = await run("broker", "start", "--json")
        assert (code, json.loads(again)["pid"]) == (0, json.loads(out)["pid"])
        assert "the local broker runs already" in err
        assert servers in (await run("broker", "status"))[1]
        (tmp_path / "rows.jsonl").write_bytes(jsontext.dumps({k: v for k, v in GOOD.items() if k != "agent_ref"}))
        code, _, err = await run("produce", "rows.jsonl", "-e", "mcqa", "--run", "r")
        assert code == 0, err
        assert "1 dispatched" in (await run("status", "--run", "r"))[1]
    finally:
        code, _, err = await run("broker", "stop")
    assert code == 0
    assert f"stopped the local broker at {servers} (data kept in" in err
    assert (await run("broker", "status"))[0] == 1


async def test_the_names_of_the_package_are_those_of_the_documentation():
    import rollstream

    assert rollstream.ScoredRollouts is ScoredRollouts
    assert all(getattr(rollstream, name) is not None for name in rollstream.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = rollstream.nope
