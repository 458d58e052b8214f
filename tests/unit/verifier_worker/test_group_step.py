"""Trajectories whose environment scores groups: what is held, what comes out, and what the lines say of those that are missing."""

from __future__ import annotations

import dataclasses
import json

import pytest
from support.ranked.environment import answer
from support.steps import NOW, REF, SOURCE, read, record

from schemas import codec, jsontext
from schemas.events import Payload, Trajectory
from services.runtime.record import HELD
from services.verifier_worker.groups import GroupBounds
from services.verifier_worker.step import VerifyStep

SIZE = 3


def event(index, text="", *, size=SIZE, row=None, **changes):
    data = {"responses_create_params": {"input": "Go."}, **(row or {})}
    values = {"ref": dataclasses.replace(REF, rollout_index=index, group_size=size), "environment": "ranked", "source": SOURCE}
    values |= {"admitted_ms": int(NOW * 1000), "finished_ms": int(NOW * 1000), "agent": "ranked_agent"}
    values |= {"row": Payload(jsontext.dumps(data)), "response": Payload(jsontext.dumps(answer(text)))}
    return Trajectory(**(values | changes))


class Stage:
    """The step, with offsets counted and what it answers awaited."""

    def __init__(self, bench, **tools):
        self.bench, self.offset = bench, 0
        self.step = VerifyStep(dataclasses.replace(bench.verify()._tools, **tools))

    def take(self, *events):
        """The answer to the last of `events`; those before are held."""
        for e in events:
            found = self.step(record("trajectories", codec.encode(e), offset=self.offset))
            self.offset += 1
            assert e is events[-1] or found is HELD
        return found

    async def outputs(self, together):
        """What each offset leads to: lines as they are, failures decoded."""
        found = await together.work()
        assert set(found) <= set(together.offsets)
        return {
            o: [json.loads(x.value) if x.topic == "p.scored-rollouts" else read(x) for x in outs] for o, outs in found.items()
        }

    async def expire(self):
        self.bench.now += 100_000
        return await self.outputs(self.step.groups.due(1, caught_up=True, stuck=False))


@pytest.fixture
def stage(bench):
    return Stage(bench)


async def test_a_group_is_scored_together_when_it_is_complete(stage):
    out = await stage.outputs(stage.take(event(2, "xxx"), event(0, "x"), event(1, "xx")))
    lines = [out[o][0] for o in range(3)]
    assert [(line["_ng_rollout_index"], line["reward"], line["group"]) for line in lines] == [
        (2, 2.0, [2, 0, 1]),
        (0, 0.0, [2, 0, 1]),
        (1, 1.0, [2, 0, 1]),
    ]
    assert not any("_ng_group" in line or "_ng_notes" in line for line in lines)


async def test_what_failed_before_is_named_in_the_lines(stage):
    lost = event(1, absent="failed in the agent stage (model)")
    out = await stage.outputs(stage.take(event(0, "x"), lost, event(2, "xx")))
    assert sorted(out) == [0, 2]
    for offset in out:
        (line,) = out[offset]
        assert line["_ng_group"] == {"size": 3, "scored": 2, "missing": {"1": "failed in the agent stage (model)"}}
        (note,) = line["_ng_notes"]
        assert note == "scored in a group of 2 of 3: rollout 1 ended before: failed in the agent stage (model)"


async def test_past_the_deadline_what_is_there_is_scored_and_the_gap_is_said(stage):
    stage.take(event(0, "x"), event(1, "xx"))
    out = await stage.expire()
    assert [out[o][0]["reward"] for o in (0, 1)] == [0.0, 1.0]
    assert out[0][0]["_ng_group"] == {"size": 3, "scored": 2, "missing": {}}
    assert "1 of its 3 rollouts had not come within 10800 s (setting `groups.timeout_s`)" in out[0][0]["_ng_notes"][0]
    straggler = stage.take(event(2, "xxx"))
    (line,) = (await stage.outputs(straggler))[2]
    assert (line["reward"], line["_ng_group"]["scored"]) == (0.0, 1)
    assert "2 of its 3 rollouts were taken before" in line["_ng_notes"][0]


@pytest.mark.parametrize("how", ["deadline", "absent", "unreadable"])
async def test_an_incomplete_group_fails_where_that_is_asked_for(bench, how):
    stage = Stage(bench, incomplete_groups="fail")
    stage.take(event(0, "x"), event(1, "xx"))
    if how == "deadline":
        out = await stage.expire()
    else:
        changes = {"absent": "gone"} if how == "absent" else {"row": {"fails": "no list"}}
        out = await stage.outputs(stage.take(event(2, **changes)))
    for offset in (0, 1):
        (failure,) = out[offset]
        assert (failure.failure_class, failure.outcome, failure.retryable) == ("verifier", "failed", True)
        assert failure.message.startswith("the group was not scored")
        assert failure.ref.rollout_index == offset
    if how != "deadline":
        assert stage.take(event(0, "x")) is HELD, "the rollouts may come again"


async def test_a_member_that_cannot_be_read_fails_alone(stage):
    out = await stage.outputs(stage.take(event(0, "x"), event(1, row={"fails": "no list"}), event(2, "xx")))
    assert out[1][0].failure_class == "data"
    assert [out[o][0]["reward"] for o in (0, 2)] == [0.0, 1.0]
    assert out[0][0]["_ng_group"] == {"size": 3, "scored": 2, "missing": {}}
    assert "could not be read" in out[0][0]["_ng_notes"][0]


async def test_a_payload_that_is_nowhere_costs_its_member(stage):
    nowhere = event(1, response=Payload(size=10, crc=7))
    out = await stage.outputs(stage.take(event(0, "x"), nowhere, event(2, "xx")))
    assert out[1][0].failure_class in {"data", "infrastructure"}
    assert out[2][0]["reward"] == 1.0


@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [
        ("raise", "verifier", "thrown on purpose"),
        ("refuse", "data", "refused"),
        ("hang", "timeout", "did not return within 0.2 s"),
    ],
)
async def test_a_verifier_that_breaks_costs_its_group(bench, how, kind, text):
    stage = Stage(bench, timeout_s=0.2)
    out = await stage.outputs(stage.take(*(event(i, row={"group_does": how}) for i in range(3))))
    for offset in range(3):
        (failure,) = out[offset]
        assert failure.failure_class == kind
        assert text in failure.message


async def test_a_cancelled_run_ends_its_groups(stage):
    stage.take(event(0), event(1))
    stage.bench.control.cancelled.add("r")
    out = await stage.outputs(stage.step.groups.due(1, caught_up=False, stuck=False))
    assert [out[o][0].outcome for o in (0, 1)] == ["cancelled", "cancelled"]


async def test_repetitions_are_recorded_and_not_counted(stage):
    stage.take(event(0, "x"))
    (twice,) = stage.take(event(0, "x"))
    assert (read(twice).outcome, read(twice).ref.rollout_index) == ("duplicate", 0)
    later = event(0, "xx", ref=dataclasses.replace(REF, rollout_index=0, group_size=3, attempt=1))
    assert stage.take(later) is HELD
    assert stage.take(event(0, absent="gone")) == ()
    out = await stage.outputs(stage.take(event(1), event(2)))
    assert out[0][0].outcome == "superseded"
    assert out[2][0]["_ng_attempt_index"] == 1
    assert len(out) == 4


async def test_a_group_that_lies_on_disk_is_scored_as_any_other(bench, tmp_path):
    stage = Stage(bench, groups=GroupBounds(memory_bytes=0))
    stage.take(event(0, "x"), event(1, "xx" * 5_000))
    assert stage.step._shelf.disk > 10_000
    out = await stage.outputs(stage.take(event(2)))
    assert [out[o][0]["reward"] for o in range(3)] == [1.0, 2.0, 0.0]
    stage.take(event(0, "x", size=2, ref=dataclasses.replace(REF, task_id="other", group_size=2)))
    folder = stage.step._shelf._folder
    await stage.step.close()
    assert not folder.exists()
