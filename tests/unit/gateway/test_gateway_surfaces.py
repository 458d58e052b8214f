"""The gateway's three APIs, spoken to by the openai package where it has a client (platform.md D2, D4, D5, G1)."""

import asyncio
import json
from contextlib import asynccontextmanager

import aiohttp
import openai
import orjson
import pytest

from rollstream.scripted import Fault, FaultKind, Options, ScriptedModel
from rollstream.scripted.chat import GENERATED
from services.gateway.app import Gateway, GatewayOptions
from services.gateway.call import Caller
from services.gateway.captures import Captures
from services.models.endpoint import ModelEndpoint
from services.models.replicas import client_of

PARAMETERS = {"type": "object", "properties": {}}
CHAT_TOOL = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": PARAMETERS}}
OUR_TOOL = {"type": "function", "name": "look", "description": "Looks.", "parameters": PARAMETERS, "strict": False}
THEIR_TOOL = {"name": "look", "description": "Looks.", "input_schema": PARAMETERS}


@asynccontextmanager
async def gateway_of(model, captures=None, *, options=None, first_byte_s=5.0, retries=1, **engine):
    endpoint = ModelEndpoint(
        base_url=model.base_url,
        name="scripted",
        options=engine,
        retries={"max_attempts": retries, "base_s": 0.01},
        timeouts={"first_byte_s": first_byte_s},
    )
    options = options or GatewayOptions()
    async with client_of(endpoint) as client:
        gateway = Gateway(
            Caller({"policy": client, "judge": client}, captures), ["policy", "judge"], captures, options, "127.0.0.1", 0
        )
        await gateway.start()
        try:
            yield gateway
        finally:
            await gateway.close()


async def arrived(model):
    """Wait until a request is with the model; the test's time limit bounds it."""
    while not model.requests:  # noqa: ASYNC110
        await asyncio.sleep(0.005)


def openai_client(gateway, prefix=""):
    return openai.AsyncOpenAI(base_url=f"{gateway.url}{prefix}/v1", api_key="none", max_retries=0)


async def post(gateway, path, body, **headers):
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    async with aiohttp.ClientSession() as session, session.post(gateway.url + path, data=data, headers=headers) as r:
        return r.status, await r.text()


def events(text):
    """The events of a stream, as (name, data)."""
    found = []
    for block in text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        if "data" in fields:
            found.append((fields.get("event"), fields["data"] if fields["data"] == "[DONE]" else json.loads(fields["data"])))
    return found


@pytest.mark.parametrize("engine", ["responses", "chat"])
async def test_an_openai_client_speaks_both_of_its_apis_whole_and_streamed(engine):
    """D2: whatever the engine speaks."""
    async with ScriptedModel() as model, gateway_of(model, engine=engine) as gateway:
        client = openai_client(gateway)
        asked = [{"role": "user", "content": "Say something."}]
        whole = await client.chat.completions.create(model="m", messages=asked)
        chunks = [
            c
            async for c in await client.chat.completions.create(
                model="m", messages=asked, stream=True, stream_options={"include_usage": True}
            )
        ]
        response = await client.responses.create(model="m", input="Say something.")
        streamed = [e async for e in await client.responses.create(model="m", input="Say something.", stream=True)]
        assert (await client.models.list()).data[0].id == "policy"
    text = "This reply comes from a script, not from a model."
    assert whole.choices[0].message.content == text
    assert (whole.choices[0].finish_reason, whole.usage.total_tokens > 0) == ("stop", True)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
    assert response.output_text == text
    assert [e.sequence_number for e in streamed] == list(range(len(streamed)))
    assert "".join(e.delta for e in streamed if e.type == "response.output_text.delta") == text
    assert streamed[-1].type == "response.completed"
    assert streamed[-1].response.output_text == text


@pytest.mark.parametrize("engine", ["responses", "chat"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_loop_over_chat(engine, stream):
    """D4, D5: a call comes out, its output goes in, the answer follows."""
    async with ScriptedModel(record=True) as model, gateway_of(model, engine=engine) as gateway:
        client = openai_client(gateway)
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Look."}]
        if stream:
            chunks = [
                c
                async for c in await client.chat.completions.create(
                    model="m", messages=messages, tools=[CHAT_TOOL], stream=True
                )
            ]
            (call,) = [t for c in chunks for t in c.choices[0].delta.tool_calls or []]
            finish = chunks[-1].choices[0].finish_reason
        else:
            reply = await client.chat.completions.create(model="m", messages=messages, tools=[CHAT_TOOL])
            (call,), finish = reply.choices[0].message.tool_calls, reply.choices[0].finish_reason
        assert (call.function.name, json.loads(call.function.arguments), finish) == ("look", {}, "tool_calls")
        made = {"id": call.id, "type": "function", "function": {"name": "look", "arguments": "{}"}}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [made]},
            {"role": "tool", "tool_call_id": call.id, "content": "seen"},
        ]
        reply = await client.chat.completions.create(model="m", messages=messages, tools=[CHAT_TOOL])
    assert "tools have answered" in reply.choices[0].message.content
    sent = json.loads(model.seen[-1].body)
    if engine == "responses":
        assert [i["type"] for i in sent["input"]] == ["message", "message", "function_call", "function_call_output"]
        assert sent["tools"] == [OUR_TOOL]
    else:
        assert sent["messages"] == messages


async def test_a_tool_loop_over_messages():
    """D2, D5: Anthropic's blocks, in and out."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}
    body = {
        "model": "claude",
        "max_tokens": 99,
        "system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Look."}, image]}],
        "tools": [THEIR_TOOL],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "metadata": {"user_id": "u"},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }
    async with ScriptedModel(record=True) as model, gateway_of(model, engine="responses") as gateway:
        status, text = await post(gateway, "/v1/messages?beta=true", body)
        reply = json.loads(text)
        (used,) = reply["content"]
        assert (status, reply["type"], reply["role"], reply["stop_reason"]) == (200, "message", "assistant", "tool_use")
        assert (used["type"], used["name"], used["input"]) == ("tool_use", "look", {})
        result = {"type": "tool_result", "tool_use_id": used["id"], "content": [{"type": "text", "text": "seen"}]}
        body["messages"] += [
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": ""}, used]},
            {"role": "user", "content": [result]},
        ]
        _, text = await post(gateway, "/v1/messages", {**body, "stream": True})
    first, second = (json.loads(s.body) for s in model.seen)
    assert first["instructions"] == "Be brief.\n\nBe kind."
    assert first["input"][0]["content"][1] == {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "auto"}
    assert (first["tools"], first["tool_choice"], first["parallel_tool_calls"]) == ([OUR_TOOL], "required", False)
    assert (first["max_output_tokens"], first["user"], first["model"]) == (99, "u", "scripted")
    assert [i["type"] for i in second["input"]] == ["message", "reasoning", "function_call", "function_call_output"]
    assert second["input"][3]["output"] == "seen"
    streamed = events(text)
    names = [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert [name for name, _ in streamed] == names
    assert all(data["type"] == name for name, data in streamed)
    assert "tools have answered" in streamed[2][1]["delta"]["text"]
    assert streamed[4][1]["delta"]["stop_reason"] == "end_turn"


async def test_cached_tokens_are_counted_in_a_responses_input_and_beside_a_messages_input():
    """D5."""
    from services.gateway.surfaces.messages import MessagesSurface

    usage = {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 3}
    reply = MessagesSurface().reply({"output": [], "usage": usage}, {})
    assert (reply["usage"]["input_tokens"], reply["usage"]["cache_read_input_tokens"], reply["usage"]["output_tokens"]) == (
        6,
        4,
        3,
    )
    assert MessagesSurface().reply({"output": [], "usage": None}, {})["usage"]["input_tokens"] is None


async def test_reasoning_in_each_api():
    async with (
        ScriptedModel(Options(reasoning="separate")) as model,
        gateway_of(model, engine="vllm", uses_reasoning_parser=True) as gateway,
    ):
        chat = json.loads((await post(gateway, "/v1/chat/completions", {"messages": [{"role": "user", "content": "?"}]}))[1])
        messages = json.loads((await post(gateway, "/v1/messages", {"messages": [{"role": "user", "content": "?"}]}))[1])
        streamed = events((await post(gateway, "/v1/responses", {"input": "?", "stream": True}))[1])
    assert chat["choices"][0]["message"]["reasoning_content"] == "A hash decides."
    assert [b["type"] for b in messages["content"]] == ["thinking", "text"]
    assert [n for n, _ in streamed].count("response.reasoning_summary_text.delta") == 1


async def test_parameters_that_responses_does_not_have_reach_an_engine_that_takes_them():
    """D3: what a harness sets (`stop`, `seed`) is not lost on the way."""
    async with ScriptedModel(record=True) as model, gateway_of(model, engine="vllm") as gateway:
        body = {"messages": [{"role": "user", "content": "?"}], "stop": ["END"], "seed": 7, "max_completion_tokens": 5}
        await post(gateway, "/v1/chat/completions", body)
        await post(gateway, "/v1/messages", {"messages": body["messages"], "stop_sequences": ["END"], "top_k": 3})
    first, second = (json.loads(s.body) for s in model.seen)
    assert (first["stop"], first["seed"], first["max_tokens"]) == (["END"], 7, 5)
    assert (second["stop"], second["top_k"]) == (["END"], 3)


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/v1/responses", b"{", 400, "not JSON"),
        ("/v1/responses", b"[1]", 400, "JSON object"),
        ("/v1/chat/completions", {"messages": "x"}, 400, "messages must be a list"),
        ("/v1/chat/completions", {"messages": [], "n": 2}, 400, "n must be 1"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "file"}]}]}, 400, "'file'"),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "?"}], "tools": [{"type": "x"}]},
            400,
            "no function",
        ),
        ("/v1/chat/completions", {"messages": [5]}, 400, "role"),
        ("/v1/messages", {"messages": [{"role": "system", "content": "?"}]}, 400, "user or assistant"),
        ("/v1/messages", {"messages": [{"role": "user", "content": [{"type": "document"}]}]}, 400, "document"),
        ("/v1/messages", {"messages": [{"role": "user", "content": "?"}], "tools": [{"type": "bash_1"}]}, 400, "bash_1"),
        ("/v1/embeddings", {}, 404, "POST /v1/messages"),
        ("/ng-rollout/-bad/v1/responses", {"input": "?"}, 400, "no rollout id"),
        ("/ng-rollout/a%20b/v1/responses", {"input": "?"}, 400, "no rollout id"),
    ],
)
async def test_a_bad_request_gets_an_error_that_says_what_is_wrong(path, body, status, says):
    async with ScriptedModel(record=True) as model, gateway_of(model, engine="responses") as gateway:
        got, text = await post(gateway, path, body)
    assert got == status
    assert says in json.loads(text)["error"]["message"]
    assert ("type" in json.loads(text)) is (path == "/v1/messages")
    assert model.seen == []


@pytest.mark.parametrize(("kind", "status"), [("status", 502), ("hang_before_headers", 504)])
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions", "/v1/messages"])
async def test_a_failure_before_a_stream_began_is_an_ordinary_error(kind, status, path):
    body = {"stream": True, "input": "?", "messages": [{"role": "user", "content": "?"}]}
    async with (
        ScriptedModel(faults=[Fault(kind=FaultKind(kind))]) as model,
        gateway_of(model, engine="responses", first_byte_s=0.1) as gateway,
    ):
        got, text = await post(gateway, path, body)
    assert got == status
    assert "error" in json.loads(text)


@pytest.mark.parametrize(
    ("path", "last"),
    [("/v1/responses", "response.failed"), ("/v1/chat/completions", None), ("/v1/messages", "error")],
)
async def test_a_failure_after_a_stream_began_is_the_apis_own_event(path, last):
    """D2. The stream begins at once, with comments while nothing has come."""
    body = {"stream": True, "input": "?", "messages": [{"role": "user", "content": "?"}]}
    faults = [Fault(kind=FaultKind.STATUS, delay=0.2)]
    async with (
        ScriptedModel(faults=faults) as model,
        gateway_of(model, engine="responses", options=GatewayOptions(ping_s=0.02)) as gateway,
    ):
        status, text = await post(gateway, path, body)
    assert status == 200
    assert text.startswith(": still at it\n\n")
    name, data = events(text)[-1]
    assert name == last
    error = data["response"]["error"] if last == "response.failed" else data["error"]
    assert "HTTP 500" in error["message"]


async def test_a_key_is_asked_for_where_one_is_set():
    body = {"input": "?"}
    async with (
        ScriptedModel() as model,
        gateway_of(model, engine="responses", options=GatewayOptions(api_key="hunter2")) as gateway,
    ):
        assert (await post(gateway, "/v1/responses", body))[0] == 401
        assert (await post(gateway, "/v1/responses", body, Authorization="Bearer wrong"))[0] == 401
        assert (await post(gateway, "/v1/responses", body, Authorization="Bearer hunter2"))[0] == 200
        assert (
            await post(gateway, "/v1/messages", {"messages": [{"role": "user", "content": "?"}]}, **{"x-api-key": "hunter2"})
        )[0] == 200


async def test_a_body_that_trickles_and_calls_beyond_the_bound_are_turned_away():
    async with (
        ScriptedModel(Options(latency={"seconds": 30})) as model,
        gateway_of(model, engine="responses", options=GatewayOptions(body_s=0.1, in_flight=1)) as gateway,
    ):
        reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
        writer.write(b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert b"408" in await reader.readline()
        writer.close()
        first = asyncio.ensure_future(post(gateway, "/v1/responses", {"input": "?"}))
        await arrived(model)
        status, text = await post(gateway, "/v1/responses", {"input": "?"})
        assert (status, "under way" in text) == (503, True)
        first.cancel()


# -- captures -----------------------------------------------------------------------------------------------------------


async def test_the_calls_of_a_rollout_are_captured_with_their_sums(tmp_path):
    """G1: a record for each call, in the dialect it was made in; unknown counts are null."""
    captures = Captures(tmp_path)
    faults = [Fault(kind=FaultKind.NONE), Fault(kind=FaultKind.NONE), Fault(kind=FaultKind.STATUS, status=429)]
    async with ScriptedModel(faults=faults) as model, gateway_of(model, captures, engine="responses") as gateway:
        client = openai_client(gateway, "/ng-rollout/3-1")
        await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "?"}])
        await client.responses.create(model="m", input="?")
        await post(
            gateway, "/ng-rollout/3-1/training-token-capture/v1/messages", {"messages": [{"role": "user", "content": "?"}]}
        )
        await post(gateway, "/v1/responses", {"input": "not captured"})
        async with aiohttp.ClientSession() as session, session.get(f"{gateway.url}/ng-rollout/3-1/capture") as r:
            attached = await r.json()
    lines = [json.loads(line) for line in (tmp_path / "3-1.capture.jsonl").read_text().splitlines()]
    assert attached["calls"] == lines
    assert [line["dialect"] for line in lines] == ["chat", "responses", "messages"]
    assert [line["error_category"] for line in lines] == [None, None, "upstream_error"]
    assert lines[0]["request"]["messages"] == [{"role": "user", "content": "?"}]
    assert lines[0]["response"]["choices"][0]["message"]["role"] == "assistant"
    assert lines[1]["response_id"] == lines[1]["response"]["id"]
    assert all(line["completed_at"] >= line["started_at"] and line["latency_ttft_ms"] is None for line in lines)
    metrics = attached["metrics"]
    assert (metrics["num_calls"], metrics["tokens_reasoning"]) == (3, 0)
    assert metrics["tokens_in"] == sum(line["usage"]["input_tokens"] for line in lines[:2])
    assert [p.name for p in tmp_path.iterdir()] == ["3-1.capture.jsonl"]


async def test_a_call_that_was_cut_off_leaves_its_marker(tmp_path):
    """G1."""
    captures = Captures(tmp_path)
    async with (
        ScriptedModel(Options(latency={"seconds": 30})) as model,
        gateway_of(model, captures, engine="responses") as gateway,
    ):
        call = asyncio.ensure_future(post(gateway, "/ng-rollout/a.b/v1/responses", {"input": "?"}))
        await arrived(model)
        call.cancel()
    attached = captures.attachment("a.b")
    assert [c["error_category"] for c in attached["calls"]] == ["incomplete"]
    assert [g["code"] for g in attached["gaps"]] == ["model_call_incomplete"]
    assert captures.attachment("a")["calls"] == []
    captures.clear("a.b")
    assert list(tmp_path.iterdir()) == []


async def test_an_agent_of_somebody_else_becomes_a_training_sample(tmp_path):
    """D8: its calls are chained by their tokens, though it knows nothing of tokens itself."""
    captures = Captures(tmp_path)
    engine = {"engine": "vllm", "return_token_id_information": True, "request_prompt_and_generation_token_ids": True}
    async with ScriptedModel() as model, gateway_of(model, captures, **engine) as gateway:
        client = openai_client(gateway, "/ng-rollout/0-0/training-token-capture")
        messages = [{"role": "user", "content": "Look."}]
        for _ in range(2):
            reply = await client.chat.completions.create(model="m", messages=messages, tools=[CHAT_TOOL])
            said = reply.choices[0].message.model_dump(exclude_none=True)
            messages.append(said)
            messages += [{"role": "tool", "tool_call_id": c["id"], "content": "seen"} for c in said.get("tool_calls", [])]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{gateway.url}/ng-rollout/0-0/sample") as r:
                sample = await r.json()
            async with session.delete(f"{gateway.url}/ng-rollout/0-0/") as r:
                assert r.status == 204
    assert list(tmp_path.iterdir()) == []
    assert sample["mask_sample"] is False
    assert [i["type"] for i in sample["output"]] == ["function_call", "message"]
    one, two = sample["output"]
    seen = one["prompt_token_ids"] + one["generation_token_ids"]
    assert two["prompt_token_ids"][: len(seen)] == seen
    assert min(two["generation_token_ids"]) >= GENERATED
    counts = sample["_ng_token_capture"]
    assert (counts["n_calls"], counts["chains"], counts["roots"], counts["delivered_fraction"], counts["status"]) == (
        2,
        1,
        1,
        1.0,
        "ok",
    )


def test_a_torn_last_line_is_dropped_and_a_call_is_kept_once(tmp_path):
    """D8: idempotent, torn last record dropped; what is appended next begins a line of its own."""
    from services.gateway.record import CallRecord

    captures = Captures(tmp_path)
    tokens = {"model_call_id": "c", "generation_token_ids": [1]}
    for _ in range(2):
        captures.finish("0-0", CallRecord("c", "chat", "policy", 1.0), tokens)
    with (tmp_path / "0-0.tokens.jsonl").open("ab") as file:
        file.write(b'{"model_call_id": "torn", "gen')
    captures.finish("0-0", CallRecord("d", "chat", "policy", 2.0), {**tokens, "model_call_id": "d"})
    records, cut = captures.tokens("0-0")
    assert [r["model_call_id"] for r in records] == ["c", "d"]
    assert cut is False
    with pytest.raises(ValueError, match="not a rollout id"):
        captures.attachment("../x")
