"""An agent's routes (platform.md H): a whole rollout, and its turns alone."""

import asyncio
import json

from support.fronts import example, fronted
from support.pipeline import KEY, faulty

from rollstream.scripted import Fault, FaultKind, Latency, Options, ScriptedModel

COUNTER = "example_session_state_mgmt"


async def test_h_run_is_a_whole_rollout_and_its_reply_the_result_line():
    row = {**example(COUNTER), "_ng_task_index": 3, "_ng_rollout_index": 1, "mine": {"kept": True}}
    async with fronted(COUNTER) as f:
        reply = await f.client.post("/run", json=row)
        line = reply.json()
        assert reply.status_code == 200
        assert {k: line[k] for k in row if k != "responses_create_params"} == {
            k: v for k, v in row.items() if k != "responses_create_params"
        }
        assert line["reward"] in {0.0, 1.0}
        assert line["response"]["output"][-1]["role"] == "assistant"
        assert f.model.requests == 3
        assert (await f.status())[COUNTER] == {"sessions": 0, "calls": 0, "calls_waiting": 0, "runs": 0, "runs_waiting": 0}


async def test_i1_many_runs_at_once_give_exactly_one_line_for_each_row():
    rows = [{**example("mcqa", n % 5), "_rowidx": n} for n in range(60)]
    async with fronted("mcqa") as f:
        replies = await asyncio.gather(*(f.client.post("/run", json=row) for row in rows))
        assert [r.json()["_rowidx"] for r in replies] == list(range(60))
        assert {r.status_code for r in replies} == {200}


async def test_h_the_turns_alone_need_no_row_and_are_not_scored():
    params = example("example_single_tool_call")["responses_create_params"]
    async with fronted("example_single_tool_call") as f:
        body = (await f.client.post("/v1/responses", json=params)).json()
        assert [i["type"] for i in body["output"]] == ["function_call", "function_call_output", "message"]
        assert body["object"] == "response"
        assert "reward" not in body
        streamed = await f.client.post("/v1/responses", json={**params, "stream": True})
        assert streamed.status_code == 422


async def test_h_the_turns_of_a_seeded_session_use_its_state():
    row = example(COUNTER)
    async with fronted(COUNTER) as f:
        await f.client.post("/seed_session", json=row)
        body = (await f.client.post("/v1/responses", json=row["responses_create_params"])).json()
        outputs = [json.loads(i["output"]) for i in body["output"] if i["type"] == "function_call_output"]
        value = (await f.client.post("/get_counter_value")).json()
        assert outputs[-1] == value != {"count": row["initial_count"]}


async def test_h_what_ends_a_rollout_is_a_typed_error_with_secrets_masked():
    faults = [Fault(kind=FaultKind.STATUS, status=401, body=f"bad key {KEY} at http://u:{KEY}@x/v1?api_key={KEY}")]
    settings = {"model": {"url": "scripted", "name": "scripted", "api_key": KEY, "max_tries": 1}}
    async with fronted("mcqa", model=ScriptedModel(faults=faults), settings=settings) as f:
        reply = await f.client.post("/run", json=example("mcqa"))
        assert (reply.status_code, reply.json()["error"]["class"]) == (502, "model")
        assert KEY not in reply.text
        assert "401" in reply.text


async def test_d10_a_rollout_whose_judge_fails_keeps_its_response():
    judge = {"url": "http://127.0.0.1:9/v1", "name": "judge", "max_tries": 1}
    async with fronted("equivalence_llm_judge", settings={"models": {"judge": judge}}) as f:
        line = (await f.client.post("/run", json=example("equivalence_llm_judge"))).json()
        assert (line["_ng_failure_class"], line["reward"]) == ("judge_failed", 0.0)
        assert line["response"]["output"]


async def test_h_failures_of_seed_tool_and_verifier_have_their_classes():
    async with fronted("faulty") as f:
        for fields, status, kind in (
            ({"seed_does": "refuse"}, 422, "data"),
            ({"tool_does": "raise"}, 500, "tool"),
            ({"verify_does": "raise"}, 500, "verifier"),
        ):
            reply = await f.client.post("/run", json=faulty(tools=True, **fields))
            assert (reply.status_code, reply.json()["error"]["class"]) == (status, kind)


async def test_h_more_runs_than_are_allowed_wait_and_more_than_may_wait_are_refused():
    from rollstream.front.bounds import Bounds

    slow = ScriptedModel(Options(latency=Latency(seconds=0.3)))
    async with fronted("mcqa", model=slow, bounds=Bounds(runs=1, waiting=1)) as f:
        replies = await asyncio.gather(*(f.client.post("/run", json=example("mcqa")) for _ in range(4)))
        codes = sorted(r.status_code for r in replies)
        assert codes == [200, 200, 503, 503]
        refused = next(r for r in replies if r.status_code == 503)
        assert refused.json()["error"] == {
            "class": "capacity", "type": "CapacityError", "message": refused.json()["detail"], "retryable": True,
        }  # fmt: skip
        assert refused.headers["retry-after"] == "1"
        assert "1 rollouts are under way and 1 wait" in refused.json()["detail"]
