"""`rollstream run` on topics that shared workers serve as well: every rollout is played once, by one of them."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE

import pytest
from support.pipeline import mcqa, running

from rollstream.ledger import read_ledger
from rollstream.scripted import ScriptedModel
from schemas.topics import SCORED, TRAJECTORIES, TURNS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


async def run(kafka, topics, folder):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ROLLSTREAM_")}
    arguments = ["run", "-e", "mcqa", "--limit", "2", "--model", "scripted", "--set", f"topics.partitions={topics.partitions}"]
    program = [sys.executable, "-c", "from rollstream.cli import main; main()", *arguments]
    where = ["--bootstrap-servers", kafka.bootstrap_servers, "--prefix", topics.prefix]
    process = await asyncio.create_subprocess_exec(*program, *where, stdout=PIPE, stderr=PIPE, cwd=folder, env=clean)
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert process.returncode == 0, (out + err).decode()


async def test_shared_workers_leave_a_run_of_its_own_alone(kafka, topics, tmp_path):
    (tmp_path / "before").mkdir()
    await run(kafka, topics, tmp_path / "before")  # in the log before the shared workers come
    async with ScriptedModel() as model, running(kafka, topics, tmp_path, model) as pipe:
        await run(kafka, topics, tmp_path)  # while they are there
        await pipe.send({"row": mcqa(), "run_id": "shared", "task_id": "t"})  # behind it, so it tells when they are through
        await pipe.ended(5)
        await pipe.idle()
        records = [r.topic for r in await pipe.everything()]
    counts = {spec.name: records.count(topics.name(spec)) for spec in (TURNS, TRAJECTORIES, SCORED)}
    assert counts == {"turns": 5, "trajectories": 5, "scored-rollouts": 5}
    ledger = await read_ledger(kafka, topics)
    assert ledger.balanced
    assert ledger.total.scored == ledger.total.dispatched == 5
