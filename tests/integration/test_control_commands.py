"""`rollstream control`: what it writes, what workers make of it, what `status` shows."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE

import pytest
from support.pipeline import Bounds, mcqa, running, until

from rollstream.control import read_control, set_control
from rollstream.scripted import ScriptedModel
from schemas.errors import DataError
from schemas.topics import CONTROL
from services.runtime.control import Control, ControlEntry

pytestmark = pytest.mark.integration


@pytest.fixture
def cli(kafka, topics, tmp_path):
    """The program, in a directory of its own."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ROLLSTREAM_")}

    async def run(*args, prefix=topics.prefix):
        where = ["--bootstrap-servers", kafka.bootstrap_servers, "--prefix", prefix]
        program = [sys.executable, "-c", "from rollstream.cli import main; main()", *args, *where]
        process = await asyncio.create_subprocess_exec(*program, stdout=PIPE, stderr=PIPE, cwd=tmp_path, env=clean)
        async with asyncio.timeout(40):
            out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    return run


async def test_a_change_leaves_the_rest_as_it_is(kafka, topics):
    assert await read_control(kafka, topics) == {}
    await set_control(kafka, topics, run="a", state="paused")
    assert await set_control(kafka, topics, run="a", policy_version="v7") == ControlEntry(state="paused", policy_version="v7")
    await set_control(kafka, topics, run="*", policy_version="v8")
    await set_control(kafka, topics, run="a", state="running")
    assert await read_control(kafka, topics) == {
        "a": ControlEntry(state="running", policy_version="v7"),
        "*": ControlEntry(policy_version="v8"),
    }


@pytest.mark.parametrize(("run", "version"), [("a/b", None), ("", None), ("**", None), ("a", ""), ("a", "v" * 1_001)])
async def test_what_cannot_be_said_is_refused_before_it_is_written(kafka, topics, run, version):
    with pytest.raises(DataError):
        await set_control(kafka, topics, run=run, state="cancelled", policy_version=version)
    assert await read_control(kafka, topics) == {}


async def test_workers_follow_a_run_and_all_runs(kafka, topics):
    control = Control(kafka, topics.name(CONTROL))
    await control.start()
    try:
        await set_control(kafka, topics, run="a", policy_version="v1")
        await set_control(kafka, topics, run="*", state="cancelled", policy_version="v0")
        # A run of which only the version was said follows the word for all runs.
        await until(lambda: control.is_cancelled("a") and control.is_cancelled("b"), "all runs are cancelled")
        assert (control.policy_version("a"), control.policy_version("b")) == ("v1", "v0")
        await set_control(kafka, topics, run="a", state="running")
        await until(lambda: not control.is_cancelled("a"), "a run's own word counts more")
        assert control.is_cancelled("b")
        await set_control(kafka, topics, run="*", state="running")
        await set_control(kafka, topics, run="b", state="paused")
        await until(lambda: control.is_paused("b"), "the run's own workers pause")
        assert not control.is_paused()
        assert not control.is_paused("a")
    finally:
        await control.close()
    late = Control(kafka, topics.name(CONTROL))
    await late.start()
    assert late.is_paused("b")
    assert late.policy_version("a") == "v1"
    await late.close()


async def test_pause_cancel_and_status(cli, kafka, topics, tmp_path):
    code, out, err = await cli("control", "pause", "*")
    assert (code, out, err) == (0, "", "all runs are paused: no further prompts are taken up, rollouts in flight go on\n")
    async with (
        ScriptedModel() as model,
        running(kafka, topics, tmp_path, model, stages=("agent", "tool", "verifier"), bounds=Bounds()) as pipe,
    ):
        await pipe.send({"row": mcqa(), "run_id": "night", "task_id": "t", "repeats": 3})
        (admission,) = [s for w in pipe.workers.values() for s in w.stages if s.settings.name == "admission"]
        await asyncio.wait_for(pipe.look(1_000), 10)
        assert admission.counters.finished == 0
        code, out, _ = await cli("status", "--run", "night")
        assert code == 0
        assert out.splitlines()[-1] == "control: all runs: paused"
        assert "3 in flight" in out
        code, _, err = await cli("control", "cancel", "night")
        assert code == 0
        assert err.startswith("run night is cancelled")
        await cli("control", "resume", "*")
        ended = await pipe.ended(3)
        assert [(f.outcome, f.failure_class) for f in ended.failures] == [("cancelled", "cancelled")] * 3
    code, out, _ = await cli("status", "--run", "night", "--json", "--check")
    value = json.loads(out)
    assert code == 3
    assert value["ledger"]["total"]["cancelled"] == 3
    assert value["ledger"]["balanced"] is True
    assert value["control"] == {"*": {"state": "running"}, "night": {"state": "cancelled"}}


async def test_policy_version_and_bad_words(cli, kafka, topics):
    code, out, err = await cli("control", "policy-version", "night", "step-1200")
    assert (code, out, err) == (0, "", "run night is at policy version step-1200\n")
    assert (await read_control(kafka, topics))["night"].policy_version == "step-1200"
    code, _, err = await cli("control", "cancel", "a b")
    assert code == 2
    assert err.startswith("rollstream: run 'a b': a letter or digit")
    code, _, err = await cli("control", "cancel", "night", prefix="nowhere")
    assert code == 1
    assert err.startswith("rollstream: there is no topic nowhere.control")
    code, _, err = await cli("control", "pause", "night")
    assert "shared workers pause for all runs only" in err


async def test_a_single_run_is_paused_by_its_own_workers(kafka, topics, tmp_path):
    await set_control(kafka, topics, run="mine", state="paused")
    async with ScriptedModel() as model, running(kafka, topics, tmp_path, model, scope="mine") as pipe:
        await pipe.send({"row": mcqa(), "run_id": "mine", "task_id": "t"})
        await pipe.look(1_000)
        assert pipe.seen.count == 0
        await set_control(kafka, topics, run="mine", state="running")
        assert (await pipe.ended(1)).one()["reward"] in (0.0, 1.0)
