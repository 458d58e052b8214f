"""Verification in another process: the same verdicts and errors as in this one, and nothing else is lost with it."""

from __future__ import annotations

import asyncio
import json
import os

import pytest
from support.steps import REF, SOURCE, Bench, read, reply, said

from environments.registry import Registry
from schemas import jsontext
from schemas.events import Payload, Trajectory
from schemas.identity import RolloutRef
from services.runtime.clients import Clients
from services.runtime.pool import ProcessPool

ENVIRONMENT = """
import os, time
from environments.environment import Environment, State, Task, Verdict
from schemas.errors import JudgeError

class Heavy(Environment):
    cpu_heavy = True

    class Task(Task):
        how: str = "ok"

    class State(State):
        calls: int = 0

    def verify(self, task, response, state, context):
        match task.how:
            case "die":
                os._exit(3)
            case "raise":
                raise ValueError("thrown on purpose")
            case "judge":
                raise JudgeError("no answer", detail="503")
            case "model":
                context.model("judge")
            case "sleep":
                time.sleep(60)
            case "odd":
                return Verdict(1, odd=lambda: 0)
            case "none":
                return None
        drawn = context.rng.random()
        return Verdict(
            0.5, components={"length": len(response.flat_text())}, mask_sample=True,
            pid=os.getpid(), calls=state.calls, drawn=drawn, data_dir=str(context.data_dir), half="half \\ud83d",
        )
"""

CONFIG = """
name: heavy
description: Verifies in a process
domain: tests
variants:
  heavy_default: {agent: {name: heavy_agent}}
"""


@pytest.fixture(name="installed")
def _installed(tmp_path, monkeypatch):
    """A package of somebody else's that registers an environment."""
    folder, metadata = tmp_path / "somebodys_heavy", tmp_path / "somebodys_heavy-1.0.dist-info"
    for path in (folder, metadata):
        path.mkdir()
    (folder / "__init__.py").touch()
    (folder / "environment.py").write_text(ENVIRONMENT)
    (folder / "config.yaml").write_text(CONFIG)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys-heavy\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[rollstream.environments]\nheavy = somebodys_heavy\n")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.fixture(name="heavy")
async def _heavy(installed, bench: Bench, tmp_path):
    pool = ProcessPool(1)
    bench.clients = Clients(pool=pool, data_dir=tmp_path, owned=[pool])
    bench.registry = Registry.load()
    await bench.clients.start()
    yield bench
    await bench.clients.close()


def trajectory(how: str = "ok", ref: RolloutRef = REF) -> Trajectory:
    row = {"responses_create_params": {"input": "x"}, "how": how}
    values = {"ref": ref, "environment": "heavy_default", "agent": "heavy_agent", "source": SOURCE, "env_state": b'{"calls":3}'}
    values |= {"row": Payload(jsontext.dumps(row)), "admitted_ms": 0, "finished_ms": 0}
    return Trajectory(**values, response=Payload(jsontext.dumps(reply(said("four")))))


async def line(bench: Bench, event: Trajectory) -> dict:
    out = await bench.take(bench.verify(), "trajectories", event)
    assert out.topic == "p.scored-rollouts"
    return json.loads(out.value)


async def test_a_heavy_environment_is_verified_in_a_process_with_its_state_and_its_own_random_numbers(heavy, tmp_path):
    first, again = await line(heavy, trajectory()), await line(heavy, trajectory())
    assert (first["reward"], first["length"], first["mask_sample"], first["calls"]) == (0.5, 4, True, 3)
    assert (first["data_dir"], first["half"]) == (str(tmp_path), "half \ud83d")
    assert first["pid"] == again["pid"] != os.getpid()
    assert first["drawn"] == again["drawn"]
    assert first["drawn"] != (await line(heavy, trajectory(ref=RolloutRef("r", "t", 7, 2))))["drawn"]


async def test_it_draws_the_same_numbers_where_there_is_no_pool(heavy):
    there = await line(heavy, trajectory())
    heavy.clients = Clients(data_dir=heavy.clients.data_dir)
    await heavy.clients.start()
    here = await line(heavy, trajectory())
    assert here.pop("pid") == os.getpid() != there.pop("pid")
    assert here == there


@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [
        ("die", "verifier", "exit status 3"),
        ("raise", "verifier", "thrown on purpose"),
        ("judge", "judge_failed", "no answer"),
        ("model", "infrastructure", "no model named 'judge'"),
        ("odd", "verifier", "cannot be handed to another process"),
        ("none", "verifier", "returned NoneType"),
    ],
)
async def test_what_goes_wrong_there_is_the_failure_that_it_would_be_here(heavy, how, kind, text):
    found = read(await heavy.take(heavy.verify(), "trajectories", trajectory(how)))
    assert (found.failure_class, found.outcome, found.stage) == (kind, "failed", "verifier")
    assert text in found.message
    assert (await line(heavy, trajectory()))["reward"] == 0.5


async def test_a_row_that_does_not_fit_is_a_failure_of_data(heavy):
    found = read(await heavy.take(heavy.verify(), "trajectories", trajectory(how=["no text"])))
    assert (found.failure_class, found.outcome) == ("data", "failed")


async def test_one_that_does_not_return_is_a_timeout_and_the_next_is_scored(heavy):
    await line(heavy, trajectory())
    heavy.timeout_s = 0.3
    late = asyncio.ensure_future(heavy.take(heavy.verify(), "trajectories", trajectory("sleep")))
    found = read(await late)
    assert (found.failure_class, found.message) == ("timeout", "the verifier did not return within 0.3 s")
    heavy.timeout_s = 30.0
    assert (await line(heavy, trajectory()))["reward"] == 0.5
