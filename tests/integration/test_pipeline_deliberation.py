"""Agents that think in several model calls, on a real Kafka: paths at once, sub-tasks one by one, a plan; the books balance."""

from __future__ import annotations

import pytest
from aiohttp import web
from support.code_server import serving
from support.pipeline import endpoint, running
from support.steps import reply, said, usage

from rollstream.ledger import read_ledger
from rollstream.ledger.ledger import Counts
from services.runtime.clients import Clients
from services.runtime.pool import ProcessPool

pytestmark = pytest.mark.integration

PATHS, PARTS, PLAN = "reasoning_gym_parallel_thinking_agent", "reasoning_gym_orchestrator_agent", "reasoning_gym_rewoo_agent"
CALLS = {PATHS: 5, PARTS: 4, PLAN: 4}
QUESTION = "Spell this word backward (example: sun -> nus): stone"
STEPS = "SUBTASK 1: the word?\nSUBTASK 2: backward?\nPlan: read #E1 = LLM[the word]\nPlan: turn #E2 = LLM[turn #E1]"


def row(agent: str) -> dict:
    return {
        "responses_create_params": {"input": [{"role": "user", "content": QUESTION}]},
        "question": QUESTION,
        "answer": "enots",
        "metadata": {"source_dataset": "spell_backward", "word": "stone"},
        "agent_ref": {"name": agent},
    }


async def test_rollouts_of_several_calls_are_scored_and_the_ledger_balances(kafka, topics, tmp_path):
    """The policy names two parts and two steps, solves them with `stone`, and ends with the answer where its form is asked for."""
    asked = []

    async def policy(request: web.Request) -> web.Response:
        text = (await request.json())["input"][-1]["content"]
        asked.append(text)
        first = "SUBTASK 1: the first" in text or "#E1 = LLM[the question]" in text
        answer = STEPS if first else "<answer>enots</answer>" if "<answer>" in text else "stone"
        return web.json_response(reply(said(answer), usage=usage(3), model="m"))

    pool = ProcessPool(1)
    async with serving("/v1/responses", policy) as url:
        clients = Clients(pool=pool, owned=[pool])
        async with running(kafka, topics, tmp_path, endpoint(f"{url}/v1"), clients=clients) as pipe:
            await pipe.send(*(row(agent) for agent in CALLS for _ in range(3)))
            ended = await pipe.ended(9, timeout_s=50)
            ledger = await read_ledger(kafka, topics)
    assert ended.failures == []
    for line in ended.lines:
        calls = CALLS[line["agent_ref"]["name"]]
        assert (line["reward"], line["extracted_answer"], line["scorer_error"]) == (1.0, "enots", None)
        assert len(line["response"]["output"]) == calls
        assert line["response"]["usage"]["total_tokens"] == calls * usage(3)["total_tokens"]
    assert len(asked) == 3 * sum(CALLS.values())
    assert asked.count("turn stone") == 3  # the first step's result, put into the second
    assert ledger.balanced
    assert ledger.total == Counts(dispatched=9, scored=9)
