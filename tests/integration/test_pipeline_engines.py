"""Rollouts over engines besides Responses, on a real Kafka: token ids from the engine to the result line (platform.md D8, D9)."""

import json

import pytest
from support.pipeline import KEY, endpoint, faulty, mcqa, running

from rollstream.scripted import Options, ScriptedModel
from rollstream.scripted.chat import GENERATED, LOG_PROB

pytestmark = pytest.mark.integration

TOOL_TURNS = 5
"""Enough for the conversation's prefix to travel by reference."""

TOKENS = {"engine": "vllm", "return_token_id_information": True, "on_prefix_mismatch": "error"}


def turns_of(line):
    """The items of a result line that carry tokens: the last of each model call."""
    return [i for i in line["response"]["output"] if "generation_token_ids" in i]


@pytest.mark.parametrize("more", [{}, {"request_prompt_and_generation_token_ids": True}], ids=["tokenize", "beside"])
async def test_token_ids_travel_unchanged_through_a_rollout_of_many_turns(kafka, topics, tmp_path, more):
    async with ScriptedModel(Options(tool_turns=TOOL_TURNS, turn_bytes=700), record=True) as model:
        policy = endpoint(model.base_url, options={**TOKENS, **more})
        async with running(kafka, topics, tmp_path, policy) as pipe:
            await pipe.send(*(faulty(tools=True, number=n) for n in range(4)))
            ended = await pipe.ended(4)
    assert ended.failures == []
    for line in ended.lines:
        turns = turns_of(line)
        assert len(turns) == TOOL_TURNS + 1
        seen = []
        for turn in turns:
            assert turn["prompt_token_ids"][: len(seen)] == seen
            assert turn["generation_log_probs"] == [LOG_PROB] * len(turn["generation_token_ids"])
            assert min(turn["generation_token_ids"]) >= GENERATED
            seen = turn["prompt_token_ids"] + turn["generation_token_ids"]
        assert sum(i >= GENERATED for i in seen) == sum(len(t["generation_token_ids"]) for t in turns)
    last = max((json.loads(s.body)["messages"] for s in model.seen), key=len)
    assert sum("generation_token_ids" in m for m in last) == TOOL_TURNS


@pytest.mark.parametrize("engine", ["chat", "vllm", "azure"])
async def test_rollouts_over_chat_completions_end_as_over_responses(kafka, topics, tmp_path, engine):
    rows = [*(mcqa(n) for n in range(6)), *(faulty(tools=True) for _ in range(3))]
    options = {"engine": engine, **({"default_query": {"api-version": "1"}} if engine == "azure" else {})}
    async with (
        ScriptedModel(record=True) as model,
        running(
            kafka, topics, tmp_path, endpoint(model.base_url.removesuffix("/v1" if engine == "azure" else ""), options=options)
        ) as pipe,
    ):
        await pipe.send(*rows)
        ended = await pipe.ended(len(rows))
    assert ended.failures == []
    assert len(ended.lines) == len(rows)
    for line in ended.lines:
        kinds = [i["type"] for i in line["response"]["output"]]
        assert kinds in (["message"], ["function_call", "function_call_output", "message"])
        assert line["response"]["usage"]["input_tokens"] > 0
        assert line["reward"] in {0.0, 1.0}
    assert all(KEY in (s.api_key, s.authorization.removeprefix("Bearer ")) for s in model.seen)


async def test_a_session_keeps_to_its_replica_through_a_rollout(kafka, topics, tmp_path):
    """platform.md D3."""
    script = Options(tool_turns=3)
    async with ScriptedModel(script, record=True) as one, ScriptedModel(script, record=True) as two:
        policy = endpoint(one.base_url, options={"engine": "vllm"}, replicas=(two.base_url,))
        async with running(kafka, topics, tmp_path, policy) as pipe:
            await pipe.send(*(faulty(tools=True, number=n) for n in range(12)))
            ended = await pipe.ended(12)
    assert len(ended.lines) == 12
    calls = [[s.key.rpartition("/")[0] for s in server.seen] for server in (one, two)]
    assert not set(calls[0]) & set(calls[1])
    assert sorted(calls[0].count(s) for s in set(calls[0])) + sorted(calls[1].count(s) for s in set(calls[1])) == [4] * 12


async def test_a_request_without_a_form_in_the_engines_api_fails_its_rollout_alone(kafka, topics, tmp_path):
    odd = mcqa()
    odd["responses_create_params"] = {"input": [{"type": "web_search_call", "id": "ws_1", "status": "completed"}]}
    async with (
        ScriptedModel() as model,
        running(kafka, topics, tmp_path, endpoint(model.base_url, options={"engine": "chat"})) as pipe,
    ):
        await pipe.send(odd, mcqa(1))
        ended = await pipe.ended(2)
    assert len(ended.lines) == 1
    (failure,) = ended.failures
    assert (failure.failure_class, failure.stage, failure.retryable) == ("data", "agent", False)
    assert "web_search_call" in failure.message
