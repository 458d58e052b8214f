"""Rollouts that are scored together, on a real Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.pipeline import Bounds, running, until
from support.ranked.environment import answer

from rollstream.scripted import ScriptedModel
from schemas import codec, headers, jsontext
from schemas.events import Payload, Trajectory
from schemas.identity import Place, RolloutRef
from schemas.topics import TRAJECTORIES
from services.verifier_worker.groups import GroupBounds

pytestmark = pytest.mark.integration

TESTS = Path(__file__).parents[1]
ROW = {"responses_create_params": {"input": "Go."}, "agent_ref": {"name": "ranked_agent"}}


def member(task, index, size=4, **changes):
    """A trajectory of rollout `index` of a task; the higher the index, the longer its answer."""
    ref = RolloutRef("r", f"task-{task}", task, index, group_size=size)
    payloads = {"row": Payload(jsontext.dumps(ROW)), "response": Payload(jsontext.dumps(answer("x" * (index + 1))))}
    event = Trajectory(ref, "ranked", "ranked_agent", Place("p", 0, 0), admitted_ms=0, finished_ms=0, **payloads)
    return dataclasses.replace(event, **changes)


async def put(pipe, *events):
    """Write trajectories as the agent worker does: the task's rollouts into one partition."""
    topic, partitions = pipe.topics.name(TRAJECTORIES), pipe.topics.partitions
    sent = [
        await pipe._producer.send(
            topic, codec.encode(e), key=e.ref.task_key, headers=headers.of(e.ref), partition=e.ref.task_index % partitions
        )
        for e in events
    ]
    await asyncio.gather(*sent)


def counted(lines):
    return Counter((line["_ng_task_index"], line["_ng_rollout_index"]) for line in lines)


async def test_groups_go_through_the_pipeline_and_are_scored_as_wholes(kafka, topics, tmp_path):
    async with ScriptedModel() as model, running(kafka, topics, tmp_path, model) as pipe:
        await pipe.send(*({"row": ROW, "run_id": "r", "repeats": 4, "task_id": f"t{i}"} for i in range(20)))
        ended = await pipe.ended(80)
        await pipe.idle()
    assert ended.failures == []
    assert all(sorted(line["group"]) == [0, 1, 2, 3] for line in ended.lines)
    assert not any("_ng_group" in line for line in ended.lines)
    assert set(counted(ended.lines).values()) == {1}


async def test_a_rollout_that_fails_before_is_announced_to_its_group(kafka, topics, tmp_path):
    """The deadline of groups is three hours away: what ends the wait is the announcement."""
    row = ROW | {"fails": [1, 3]}
    async with ScriptedModel() as model, running(kafka, topics, tmp_path, model) as pipe:
        await pipe.send(
            {"row": row, "run_id": "r", "repeats": 4}, {"row": row | {"fails": [0, 1]}, "run_id": "r", "repeats": 2}
        )
        ended = await pipe.ended(6)
        await until(lambda: not pipe.stage("verifier").held, "nothing is held")
        await pipe.idle()
    assert sorted(f.ref.rollout_index for f in ended.failures) == [0, 1, 1, 3]
    assert [sorted(line["group"]) for line in ended.lines] == [[0, 2], [0, 2]]
    why = "failed in the agent stage (infrastructure)"
    assert [line["_ng_group"] for line in ended.lines] == [{"size": 4, "scored": 2, "missing": {"1": why, "3": why}}] * 2


@pytest.mark.parametrize("incomplete", ["score", "fail"])
async def test_a_group_past_its_deadline(kafka, topics, tmp_path, incomplete):
    bounds = Bounds(groups=GroupBounds(timeout_s=1.0), incomplete_groups=incomplete)
    async with ScriptedModel() as model, running(kafka, topics, tmp_path, model, stages=("verifier",), bounds=bounds) as pipe:
        await put(pipe, member(0, 0), member(0, 2), member(1, 0, size=2), member(1, 1, size=2))
        ended = await pipe.ended(4)
        await put(pipe, member(0, 1), member(0, 3))
        await pipe.ended(6)
    whole = [line for line in ended.lines if line["_ng_task_index"] == 1]
    assert [line["reward"] for line in whole] == [0.0, 1.0]
    if incomplete == "fail":
        assert len(ended.failures) == 4
        assert all("the group was not scored" in f.message for f in ended.failures)
    else:
        assert set(counted(ended.lines).values()) == {1}
        partial = [line for line in ended.lines if line["_ng_task_index"] == 0]
        assert [line["_ng_group"]["scored"] for line in partial] == [2, 2, 2, 2]
        assert [line["group"] for line in partial] == [[0, 2], [0, 2], [1, 3], [1, 3]]


async def test_duplicates_are_recorded_and_change_nothing(kafka, topics, tmp_path):
    async with ScriptedModel() as model, running(kafka, topics, tmp_path, model, stages=("verifier",)) as pipe:
        await put(pipe, member(0, 0), member(0, 0), member(0, 1), member(0, 1), member(0, 2), member(0, 3), member(0, 3))
        ended = await pipe.ended(7)
    assert Counter(f.outcome for f in ended.failures) == {"duplicate": 3}
    assert [line["reward"] for line in sorted(ended.lines, key=lambda line: line["_ng_rollout_index"])] == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.timeout(120)
async def test_hundreds_of_groups_with_a_straggler_each_come_through_a_stage_that_works_on_eight(kafka, topics, tmp_path):
    """500 groups of 8: 3,500 records wait behind a stage with room for 8, the stragglers come last."""
    bounds = Bounds(in_flight=8, groups=GroupBounds(memory_bytes=100_000))
    async with ScriptedModel() as model, running(kafka, topics, tmp_path, model, stages=("verifier",), bounds=bounds) as pipe:
        await put(pipe, *(member(task, index, size=8) for index in range(7) for task in range(500)))
        await until(lambda: pipe.stage("verifier").held == 3_500, "all but the stragglers wait")
        assert (await pipe.look()).count == 0
        await put(pipe, *(member(task, 7, size=8) for task in range(500)))
        ended = await pipe.ended(4_000, timeout_s=60)
        await pipe.idle()
    assert ended.failures == []
    assert set(counted(ended.lines).values()) == {1}
    assert all(len(line["group"]) == 8 for line in ended.lines)


class Verifier:
    """The process of `support.group_member`."""

    def __init__(self, kafka, topics):
        self.line = (kafka.bootstrap_servers, topics.prefix, str(topics.partitions))

    async def __aenter__(self):
        path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "support.group_member", *self.line),
            stdout=asyncio.subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path},
        )
        await self.says("ready")
        return self

    async def says(self, text):
        async with asyncio.timeout(40):
            while (line := await self.process.stdout.readline()) != text.encode() + b"\n":
                assert line, f"the verifier ended before it said {text!r}"

    async def kill(self):
        self.process.kill()
        await self.process.wait()

    async def __aexit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


@pytest.mark.timeout(120)
async def test_a_verifier_that_is_killed_with_half_of_its_groups_loses_and_doubles_nothing(kafka, topics, tmp_path):
    """Three verifiers one after the other, each killed with -9 while groups are half here; whole groups go on being scored."""
    groups = range(60)
    async with ScriptedModel() as model, running(kafka, topics, tmp_path, model, stages=()) as pipe:
        async with Verifier(kafka, topics) as first:
            await put(pipe, *(member(task, index) for index in range(2) for task in groups))
            await first.says("held 120")
            await first.kill()
        await put(pipe, *(member(task, 2) for task in groups), *(member(task, 3) for task in groups[:30]))
        async with Verifier(kafka, topics) as second:
            await second.says("held 90")
            await pipe.ended(120, timeout_s=40)
            await second.kill()
        assert all(line["_ng_task_index"] < 30 for line in pipe.seen.lines)
        await put(pipe, *(member(task, 3) for task in groups[30:]))
        async with Verifier(kafka, topics):
            ended = await pipe.ended(240, timeout_s=40)
    assert ended.failures == []
    assert counted(ended.lines) == Counter({(task, index): 1 for task in groups for index in range(4)})
    assert all(line["group"] == [0, 1, 2, 3] for line in ended.lines)
    assert all(line["reward"] == line["_ng_rollout_index"] for line in ended.lines)
    assert not any("_ng_group" in line for line in ended.lines)
