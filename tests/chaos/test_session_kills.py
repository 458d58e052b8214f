"""A rollout's Python session whose worker is killed between two calls: another worker goes on with its variables."""

from __future__ import annotations

import asyncio
import time

import pytest

from rollstream.producer import PromptProducer
from schemas import codec, jsontext
from schemas.events import Turn
from schemas.topics import FAILURES, SCORED, TURNS
from tests.chaos.havoc import say
from tests.chaos.traffic import Tail

pytestmark = pytest.mark.chaos

ROLLOUTS = 4
FIRST = "import random\nx = 41\ndraw = random.random()\nprint(draw)"
SECOND = "print(draw)\nprint('\\\\boxed{%d}' % (x + 1))"


def offer(code):
    """The tool as the scripted model will call it: with this code and no other."""
    parameters = {
        "type": "object",
        "properties": {"code": {"const": code}},
        "required": ["code"],
        "additionalProperties": False,
    }
    return {"type": "function", "name": "execute_python", "description": "", "parameters": parameters, "strict": True}


ROW = {
    "responses_create_params": {"input": "Compute.", "tools": [offer(FIRST), offer(SECOND)]},
    "expected_result": "42",
    "agent_ref": {"name": "math_with_code_simple_agent"},
}


def rollouts(records, topic, of):
    """The rollouts of records of one topic for which `of` holds."""
    return {dict(r.headers)["rs-rollout"] for r in records if r.topic == topic and of(r)}


def outputs(line):
    """What the tool printed, call by call."""
    items = line["response"]["output"]
    return [jsontext.loads(i["output"])["stdout"] for i in items if i["type"] == "function_call_output"]


@pytest.mark.timeout(120)
async def test_a_session_whose_worker_was_killed_between_two_calls_goes_on_elsewhere_with_its_variables(kafka, topics, crew):
    pytest.importorskip("numpy")
    model = crew.model("--latency", "3", "--vary-by-key")
    first = crew.worker("tool")
    others = [crew.worker("agent", "--model", model), crew.worker("verifier")]
    await asyncio.gather(*(w.ready() for w in (first, *others)))
    async with Tail(kafka, topics, (TURNS, SCORED, FAILURES)) as tail:
        async with PromptProducer(kafka, topics) as producer:
            await producer.send(ROW, run_id="sessions", task_id="t", task_index=0, repeats=ROLLOUTS)

        def called():
            return rollouts(tail.records, topics.name(TURNS), lambda r: codec.decode(r.value, Turn).rollout.turn == 1)

        await first.until(lambda: len(called()) == ROLLOUTS, "every rollout has made its first call", 60)
        gone = first.kill()
        second = crew.worker("tool")
        await second.until(lambda: _ended(tail, topics) == ROLLOUTS, "every rollout has ended", 60)
    assert not [r for r in tail.records if r.topic == topics.name(FAILURES)]
    lines = [jsontext.loads(r.value) for r in tail.records if r.topic == topics.name(SCORED)]
    for line in lines:
        (drawn,), (again, box) = (text.split() for text in outputs(line))
        assert (again, box) == (drawn, "\\boxed{42}")
        assert line["reward"] == 1.0
    rebuilt = [e["rollout"] for e in second.events() if e.get("event") == "session.rebuilt"]
    assert sorted(rebuilt) == sorted(r.decode() for r in called())
    assert len({outputs(line)[0] for line in lines}) == ROLLOUTS  # each has random numbers of its own
    say(f"{ROLLOUTS} sessions rebuilt; all had ended {time.time() - gone:.1f} s after the kill")


def _ended(tail, topics):
    return len({(r.topic, dict(r.headers)["rs-rollout"]) for r in tail.records if r.topic != topics.name(TURNS)})
