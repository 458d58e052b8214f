"""The scripted server over HTTP: what it says of itself, its faults, and the process of its own."""

import asyncio
import json
import sys

import aiohttp
import orjson
import pytest

from rollstream.scripted import Fault, FaultKind, ScriptedModel

TOOL = {
    "type": "function",
    "name": "f",
    "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
}


async def post(model, request, key="k"):
    url, headers = f"{model.base_url}/responses", {"Idempotency-Key": key}
    async with aiohttp.ClientSession() as session, session.post(url, json=request, headers=headers) as r:
        return r.status, await r.read()


async def output_with(kind, request=None):
    async with ScriptedModel(faults=[Fault(kind=kind)]) as model:
        status, raw = await post(model, request or {"input": "x", "tools": [TOOL]})
        assert status == 200
        return json.loads(raw)["output"]


async def test_it_does_not_pass_for_a_model():
    async with ScriptedModel() as model:
        status, raw = await post(model, {"input": "x", "model": "gpt-9"})
        assert (status, orjson.loads(raw)["model"]) == (200, "scripted")
        assert model.url == f"{model.base_url}/scripted"
        async with aiohttp.ClientSession() as session, session.get(f"{model.base_url}/models") as r:
            listed = (await r.json())["data"][0]
    assert listed["id"] == "scripted"
    assert "not a model" in listed["owned_by"]


async def test_the_reply_is_what_the_openai_package_expects():
    from openai.types.responses import Response

    async with ScriptedModel() as model:
        for request in ({"input": "x"}, {"input": "x", "tools": [TOOL], "temperature": 1.0, "metadata": {"a": "b"}}):
            _, raw = await post(model, request)
            parsed = Response.model_validate_json(raw)
            assert parsed.usage is not None
            assert parsed.usage.total_tokens == parsed.usage.input_tokens + parsed.usage.output_tokens


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[1]", b'{"metadata": {"scripted_faults": "what"}}'])
async def test_bad_requests_are_refused(body):
    async with ScriptedModel() as model, aiohttp.ClientSession() as session:
        async with session.post(f"{model.base_url}/responses", data=body) as r:
            assert r.status == 400
        async with session.post(f"{model.base_url}/chat/completions", data=body) as r:
            assert r.status == 400


async def test_a_request_brings_its_faults_and_touches_no_other():
    wanted = json.dumps([{"status": 503, "retry_after": "2"}, {"kind": "none"}, {"status": 401}])
    faulty = {"input": "x", "metadata": {"scripted_faults": wanted}}
    async with ScriptedModel() as model:
        statuses = [(await post(model, faulty, "a"))[0] for _ in range(4)]
        assert statuses == [503, 200, 401, 200]
        assert (await post(model, {"input": "x"}, "a"))[0] == 200
        assert (await post(model, faulty, "b"))[0] == 503


async def test_faults_of_calls():
    (malformed,) = await output_with(FaultKind.MALFORMED_ARGUMENTS)
    with pytest.raises(ValueError):
        json.loads(malformed["arguments"])
    (double,) = await output_with(FaultKind.DUPLICATE_ARGUMENTS)
    assert double["arguments"].count('"n"') == 2
    json.loads(double["arguments"])
    (unknown,) = await output_with(FaultKind.UNKNOWN_TOOL)
    assert unknown["name"] == "no_such_tool"
    parallel = await output_with(FaultKind.PARALLEL_CALLS)
    assert len({c["call_id"] for c in parallel}) == 3
    assert await output_with(FaultKind.EMPTY_OUTPUT) == []
    assert [i["type"] for i in await output_with(FaultKind.REASONING_ONLY)] == ["reasoning"]


async def test_the_process_of_its_own_says_where_it_listens_and_ends_with_its_parent():
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "rollstream.scripted", "--with-parent", "--latency", "0.01",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    line = json.loads(await process.stdout.readline())
    async with aiohttp.ClientSession() as session, session.post(f"{line['base_url']}/responses", json={"input": "x"}) as r:
        assert (await r.json())["model"] == "scripted"
    assert line["url"] == f"http://127.0.0.1:{line['port']}/v1/scripted"
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), 20) == 0


async def test_the_process_stops_at_sigterm():
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "rollstream.scripted", stdout=asyncio.subprocess.PIPE)
    await process.stdout.readline()
    process.terminate()
    assert await asyncio.wait_for(process.wait(), 20) == 0
