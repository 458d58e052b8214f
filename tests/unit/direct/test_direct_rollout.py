"""Whole rollouts without Kafka: what the workers do, call by call (H: `POST /run` and `chat` run on it)."""

import asyncio
import json

import pytest
from support.faulty import environment as faulty_environment
from support.fronts import example, serviced
from support.pipeline import faulty, registry

from rollstream.scripted import Fault, FaultKind, ScriptedModel
from schemas.errors import DataError, FailureClass, RolloutError, RolloutTimeout, ToolError
from schemas.identity import RolloutRef
from services.direct.episode import Episode
from services.direct.playing import Asked, Called, Moved, Replied
from services.direct.rollout import Rollout


def ref(name="r"):
    return RolloutRef("test", name, 0, 0, explicit_id=name)


async def rolled(services, row, name, **kwargs):
    rollout = Rollout(services, registry().binding(name, None), ref(), row)
    return await rollout.run(**kwargs)


async def test_every_step_is_told_in_order_and_the_line_is_that_of_the_workers():
    events = []
    async with ScriptedModel() as model, serviced(model) as services:
        row = {**example("example_session_state_mgmt"), "_ng_task_index": 5}
        scored = await rolled(services, row, "example_session_state_mgmt", observe=events.append)
    kinds = [type(e) for e in events]
    assert kinds == [Asked, Replied, Called, Asked, Replied, Called, Asked, Replied]
    assert [e.turn for e in events if isinstance(e, Asked)] == [1, 2, 3]
    line = json.loads(scored.line)
    assert line["expected_count"] == 9
    assert line["agent_ref"]["name"] == "example_session_state_mgmt_simple_agent"
    kinds = [item["type"] for item in line["response"]["output"]]
    assert kinds == ["function_call", "function_call_output", "function_call", "function_call_output", "message"]
    counts = [json.loads(e.reply.output).get("count") for e in events if isinstance(e, Called)]
    assert counts[1] not in {None, 2}, "the tools worked on the state of the seed"
    assert line["response"]["usage"]["total_tokens"] > 0
    assert scored.verdict.reward == float(counts[1] == 9)


async def test_a_partner_moves_and_is_closed_at_the_end():
    events = []
    before = len(faulty_environment.CLOSED)
    async with ScriptedModel() as model, serviced(model) as services:
        scored = await rolled(services, faulty("faulty_partner", moves=3), "faulty_partner", observe=events.append)
    moves = [e for e in events if isinstance(e, Moved)]
    assert [m.done for m in moves] == [False, False, True]
    assert scored.verdict.fields["moves"] == 3
    assert faulty_environment.CLOSED[before:] == ["r"]


@pytest.mark.parametrize(
    ("fields", "failure"),
    [
        ({"seed_does": "raise"}, FailureClass.INFRASTRUCTURE),
        ({"seed_does": "refuse"}, FailureClass.DATA),
        ({"verify_does": "raise"}, FailureClass.VERIFIER),
        ({"verify_does": "nan"}, FailureClass.VERIFIER),
        ({"verify_does": "odd_extra"}, FailureClass.VERIFIER),
        ({"tool_does": "raise"}, FailureClass.TOOL),
    ],
)
async def test_what_fails_has_its_class_and_is_closed_however_it_ended(fields, failure):
    before = len(faulty_environment.CLOSED)
    async with ScriptedModel() as model, serviced(model) as services:
        with pytest.raises(RolloutError) as caught:
            await rolled(services, faulty(tools=True, **fields), "faulty")
    assert caught.value.failure_class is failure
    assert faulty_environment.CLOSED[before:], "closed"


async def test_a_model_that_fails_past_its_tries_ends_the_rollout():
    broken = [Fault(kind=FaultKind.STATUS, status=400)]
    async with ScriptedModel(faults=broken) as model, serviced(model) as services:
        with pytest.raises(RolloutError) as caught:
            await rolled(services, example("mcqa"), "mcqa")
    assert caught.value.failure_class is FailureClass.MODEL


async def test_a_hanging_tool_ends_by_its_deadline_and_not_the_loop():
    async with ScriptedModel() as model, serviced(model, {"deadlines": {"tool_timeout_s": 0.2}}) as services:
        with pytest.raises(RolloutTimeout, match=r"tool 'poke' did not return within 0\.2 s"):
            await rolled(services, faulty(tools=True, tool_does="hang"), "faulty")


async def test_a_computing_environment_does_not_hold_up_its_neighbours():
    async with ScriptedModel() as model, serviced(model) as services:
        slow = asyncio.ensure_future(rolled(services, faulty(tools=True, tool_does="compute", seconds=1.5), "faulty"))
        await asyncio.sleep(0.3)
        for _ in range(3):
            await rolled(services, example("mcqa"), "mcqa")
        assert not slow.done(), "three rollouts were over while one computed"
        await slow


async def test_a_call_that_failed_leaves_the_state_as_it_was():
    async with ScriptedModel() as model, serviced(model) as services:
        row = example("example_session_state_mgmt")
        episode = Episode(services, registry().binding("example_session_state_mgmt", None), ref(), row)
        await episode.seed()
        before = episode.state
        with pytest.raises(ToolError):
            await episode.call(_call("increment_counter", '{"count": 1' + "0" * 4_050 + "}"))
        assert episode.state == before
        assert json.loads((await episode.call(_call("get_counter_value"))).output) == {"count": row["initial_count"]}


async def test_without_a_seed_tools_that_need_none_answer_and_others_say_so():
    async with ScriptedModel() as model, serviced(model) as services:
        counter = Episode(services, registry().binding("example_session_state_mgmt", None), ref(), None)
        assert (await counter.call(_call("increment_counter", '{"count": 3}'))).status == 200
        assert (await counter.call(_call("get_counter_value"))).output == '{"count":3}'
        needs_task = Episode(services, registry().binding("faulty", None), ref(), None)
        with pytest.raises(DataError, match="seed it first"):
            await needs_task.call(_call("poke"))


def _call(name, arguments="{}"):
    from schemas.events import ToolCall

    return ToolCall("c", name, arguments)
