"""Environments that answer the policy's turns: a Lean proof that is corrected once, and questions of GSM8k, on a real Kafka."""

from __future__ import annotations

import pytest
from aiohttp import web
from support.code_server import MARKER, code_server, serving
from support.pipeline import endpoint, running
from support.steps import reply, said, usage

from rollstream.scripted import ScriptedModel
from schemas.topics import TOOL_CALLS
from services.code_server.client import HttpCodeServer
from services.runtime.clients import Clients

pytestmark = pytest.mark.integration

THEOREM = {
    "responses_create_params": {"input": "Prove it.", "temperature": 0.5, "max_output_tokens": 900},
    "header": "import Mathlib\n\n",
    "formal_statement": "theorem t : True := by\n",
    "agent_ref": {"name": "math_formal_lean_refinement_agent"},
}


def proof(tactic: str) -> str:
    return f"```lean4\ntheorem t : True := by\n  {tactic}\n```"


async def test_a_proof_is_corrected_once(kafka, topics, tmp_path):
    asked = []

    async def policy(request: web.Request) -> web.Response:
        asked.append(await request.json())
        corrected = MARKER in str(asked[-1]["input"])
        return web.json_response(reply(said(proof("trivial" if corrected else MARKER)), usage=usage(3), model="m"))

    async with code_server() as lean, serving("/v1/responses", policy) as url:
        server = HttpCodeServer(lean.url)
        clients = Clients(code_server=server, owned=[server])
        async with running(kafka, topics, tmp_path, endpoint(f"{url}/v1"), clients=clients) as pipe:
            await pipe.send(THEOREM)
            line = (await pipe.ended(1)).one()
    programs = ["import Mathlib\n\ntheorem t : True := by\n  " + tactic for tactic in (MARKER, "trivial")]
    assert [r["generated_code"] for r in lean.requests] == programs  # each attempt once: the verifier compiles nothing again
    assert (line["reward"], line["proof_status"], line["turn_index"], line["total_turns"]) == (1.0, "completed", 1, 2)
    assert [(a["reward"], a["proof_status"]) for a in line["all_attempts"]] == [(0.0, "failed"), (1.0, "completed")]
    assert [i["content"][0]["text"] for i in line["response"]["output"]] == [proof("trivial")]
    assert line["response"]["usage"]["total_tokens"] == 8
    assert line["responses_create_params"]["input"] == "Prove it."
    first, second = asked
    assert first["max_output_tokens"] == 900
    assert second["temperature"] == 0.5
    assert "max_output_tokens" not in second
    assert [i["role"] for i in second["input"]] == ["user"]
    assert f"unknown tactic '{MARKER}'" in second["input"][0]["content"]
    assert second["input"] == line["all_attempts"][1]["input"]


async def test_questions_are_answered_with_tools_that_are_scored_step_by_step(kafka, topics, tmp_path):
    """The scripted policy calls the calculator with words, which ends an episode with -1."""
    row = {
        "responses_create_params": {"input": []},
        "question": "How much is 6 times 7?",
        "answer": "#### 42",
        "agent_ref": {"name": "gsm8k_aviary_agent"},
    }
    async with ScriptedModel() as model, running(kafka, topics, tmp_path, model) as pipe:
        await pipe.send(*({**row, "task_idx": i} for i in range(20)))
        ended = await pipe.ended(20)
        moves = [r for r in await pipe.everything() if r.topic == topics.name(TOOL_CALLS)]
    assert ended.failures == []
    assert {line["reward"] for line in ended.lines} == {-1.0}
    assert sorted(line["response"]["group_id"] for line in ended.lines) == sorted(str(i) for i in range(20))
    for line in ended.lines:
        (state,) = line["response"]["output"]
        assert [i["type"] for i in state] == ["message", "function_call", "function_call_output"]
        assert state[0]["content"] == row["question"]
        assert state[2]["output"].startswith("Error using calculator: ")
        assert line["response"]["contains_transitions"] is True
        assert line["response"]["env_id"] == f"{line['_ng_task_index']}-0"
    assert len(moves) == 20  # nothing to close: no event for it
