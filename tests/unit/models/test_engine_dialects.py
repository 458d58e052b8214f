"""The policy client against a scripted server in each engine's own dialect (platform.md D1, D3, D6, D8, D9)."""

import asyncio
import base64
import hashlib
import json

import orjson
import pytest
from pydantic import ValidationError

from rollstream.scripted import Fault, FaultKind, Options, ScriptedModel
from rollstream.scripted.chat import GENERATED, LOG_PROB
from schemas.errors import DataError, InfrastructureError, ModelError
from services.models.client import PolicyClient
from services.models.endpoint import ModelEndpoint
from services.models.replicas import ReplicatedClient, client_of, replica_of
from services.models.reply import overflowed

KEY = "an-unusual-secret-123456"
REQUEST = {"model": "scripted", "input": "Pick one.\nA: 1\nB: 2\nEnd with \\boxed{}."}
TOOL = {
    "type": "function",
    "name": "look",
    "description": "",
    "parameters": {"type": "object", "properties": {}},
    "strict": True,
}


def endpoint(url, engine="vllm", *, query=None, **options):
    if query:
        options["default_query"] = query
    return ModelEndpoint(
        base_url=url, name="scripted", api_key=KEY, retries={"max_attempts": 3}, options={"engine": engine, **options}
    )


async def asked(request, engine="vllm", *, root="/v1", script=None, faults=(), **options):
    """The reply to `request`, and the bodies and requests that the server saw."""
    async with ScriptedModel(script, faults=faults, record=True) as model:
        made = endpoint(model.base_url.removesuffix("/v1") + root, engine, **options)
        async with PolicyClient(made, uniform=lambda low, _: low) as client:
            reply = await client.create(orjson.dumps(request), idempotency_key="run/0-0/0.0")
        return reply.body, [json.loads(s.body) for s in model.seen], model.seen


@pytest.mark.parametrize("engine", ["chat", "vllm"])
async def test_a_chat_engine_answers_in_responses(engine):
    """D1, D4, D5."""
    body, (sent,), (seen,) = await asked({**REQUEST, "max_output_tokens": 500, "temperature": 0.5}, engine)
    assert seen.path == "/v1/chat/completions"
    assert seen.authorization == f"Bearer {KEY}"
    assert sent == {
        "model": "scripted",
        "messages": [{"role": "user", "content": REQUEST["input"]}],
        "max_tokens": 500,
        "temperature": 0.5,
    }
    assert body["object"] == "response"
    assert "\\boxed{" in body["output"][0]["content"][0]["text"]
    assert body["usage"]["output_tokens"] > 0
    assert "generation_token_ids" not in body["output"][0]


async def test_tools_go_out_and_calls_come_back():
    """D4, D5: a whole loop of two turns over Chat Completions."""
    request = {"model": "scripted", "input": [{"role": "user", "content": "Look."}], "tools": [TOOL]}
    body, (sent,), _ = await asked(request)
    (call,) = body["output"]
    assert (call["type"], call["name"]) == ("function_call", "look")
    request["input"] += [call, {"type": "function_call_output", "call_id": call["call_id"], "output": "seen"}]
    body, (sent,), _ = await asked(request)
    assert [m["role"] for m in sent["messages"]] == ["user", "assistant", "tool"]
    assert sent["messages"][2]["tool_call_id"] == sent["messages"][1]["tool_calls"][0]["id"]
    assert body["output"][0]["type"] == "message"


async def test_azure_has_its_own_paths_and_header():
    """D1: the deployment in the path, the version in the query, the key in `api-key`, and no key it would not know."""
    body, (sent,), (seen,) = await asked(
        {**REQUEST, "input": [{"role": "assistant", "content": "a", "prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-1]}]},
        "azure", root="", query={"api-version": "2025-04-01-preview"},
    )  # fmt: skip
    assert seen.path == "/openai/deployments/scripted/chat/completions?api-version=2025-04-01-preview"
    assert (seen.api_key, seen.authorization) == (KEY, "")
    assert sent["messages"] == [{"role": "assistant", "content": "a"}]
    assert body["status"] == "completed"
    with pytest.raises(ValidationError, match="api-version"):
        endpoint("https://x.openai.azure.com", "azure")


async def test_precedence_of_bodies():
    """D3: config < metadata.extra_body < the request's own < sampling_overrides; template arguments key by key."""
    request = {
        **REQUEST,
        "top_p": 0.3,
        "metadata": {
            "extra_body": json.dumps({"seed": 7, "min_p": 0.2, "temperature": 0.9, "chat_template_kwargs": {"c": 3}}),
            "chat_template_kwargs": json.dumps({"b": 2}),
        },
        "temperature": 0.5,
    }
    _, (sent,), _ = await asked(
        request,
        extra_body={"seed": 1, "min_p": 0.1, "top_k": 5, "top_p": 0.1, "temperature": 0.1},
        sampling_overrides={"top_p": 1.0, "top_k": -1},
        chat_template_kwargs={"a": 1, "b": 1},
    )
    del sent["messages"], sent["model"]
    assert sent == {
        "seed": 7,
        "min_p": 0.2,
        "top_k": -1,
        "top_p": 1.0,
        "temperature": 0.5,
        "chat_template_kwargs": {"a": 1, "b": 2, "c": 3},
    }


@pytest.mark.parametrize("text", ["{", "[1]", '"a"'])
async def test_metadata_that_is_no_json_object_is_a_data_error(text):
    with pytest.raises(DataError, match=r"metadata\.extra_body"):
        await asked({**REQUEST, "metadata": {"extra_body": text}})


async def test_overrides_reach_a_native_engine_and_nothing_else_does():
    """D1, D3: `is_responses_native` by the same precedence; the platform's keys are taken out of the metadata."""
    request = {**REQUEST, "metadata": {"a": "b", "extra_body": '{"seed": 3}'}, "temperature": 0.5}
    _, (sent,), (seen,) = await asked(request, is_responses_native=True, sampling_overrides={"temperature": 1.0})
    assert seen.path == "/v1/responses"
    assert sent == {**REQUEST, "metadata": {"a": "b"}, "temperature": 1.0, "seed": 3}
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    given = {
        **REQUEST,
        "input": [thought, {"role": "user", "content": "Go."}],
        "metadata": {"extra_body": '{"seed": 3}'},
        "top_p": 0.1,
    }
    _, (sent,), _ = await asked(given, "responses", drop_input_reasoning_items=True, extra_body={"top_p": 1, "store": False})
    assert sent == {**given, "input": [{"role": "user", "content": "Go."}], "store": False}


async def test_the_plain_engine_sends_the_bytes_as_they_are():
    async with ScriptedModel(record=True) as model, PolicyClient(endpoint(model.base_url, "responses")) as client:
        body = b'{"input" :  "x", "model":"scripted","metadata":{"extra_body":"{}"}}'
        await client.create(body, idempotency_key="k")
    assert model.seen[0].body == body


THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
HISTORY = [
    {"role": "user", "content": "?"},
    THOUGHT,
    {"role": "assistant", "content": "Said."},
    {"role": "user", "content": "Go on."},
]


@pytest.mark.parametrize(
    ("options", "assistant"),
    [
        ({}, {"content": "<think>Hm.</think>Said."}),
        ({"uses_reasoning_parser": True}, {"content": "Said.", "reasoning_content": "Hm.", "reasoning": "Hm."}),
        ({"uses_reasoning_parser": True, "uses_interleaved_reasoning": False}, {"content": "Said."}),
        (
            {"uses_reasoning_parser": True, "preserve_reasoning_in_assistant_content": True},
            {"content": "<think>Hm.</think>Said."},
        ),
    ],
)
async def test_where_earlier_thoughts_go(options, assistant):
    """D4."""
    _, (sent,), _ = await asked({**REQUEST, "input": HISTORY}, **options)
    assert sent["messages"][1] == {"role": "assistant", **assistant}


@pytest.mark.parametrize("reasoning", ["inline", "separate"])
async def test_reasoning_comes_back_as_an_item(reasoning):
    body, _, _ = await asked(REQUEST, script=Options(reasoning=reasoning), uses_reasoning_parser=True)
    assert [i["type"] for i in body["output"]] == ["reasoning", "message"]
    assert body["output"][0]["summary"] == [{"type": "summary_text", "text": "A hash decides."}]


async def test_an_engine_that_parses_reasoning_unasked_is_a_wrong_setting_and_tried_once():
    with pytest.raises(ModelError, match="uses_reasoning_parser") as e:
        await asked(REQUEST, script=Options(reasoning="separate"))
    assert not e.value.retryable
    assert "after 1 of 3 tries" in str(e.value)


async def test_developer_messages_may_become_system_messages():
    given = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "?"}]
    _, (sent,), _ = await asked({**REQUEST, "input": given}, replace_developer_role_with_system=True)
    assert [m["role"] for m in sent["messages"]] == ["system", "user"]


async def test_thoughts_alone_are_not_sent_where_they_may_not_follow_each_other():
    """D6."""
    body, sent, _ = await asked(
        {**REQUEST, "input": HISTORY[:2]}, uses_reasoning_parser=True, sequential_reasoning_allowed=False
    )
    assert sent == []
    assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": "content_filter"})
    assert body["output"][0]["content"][0]["text"] == ""


@pytest.mark.parametrize("engine", ["chat", "vllm", "completions"])
async def test_an_overflow_is_an_incomplete_reply(engine):
    """D6."""
    options = {} if engine == "chat" else {"return_token_id_information": True}
    body, _, _ = await asked(REQUEST, engine, faults=[Fault(kind=FaultKind.OVERFLOW)], **options)
    assert overflowed(body)
    assert body["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.parametrize(
    "kind", [FaultKind.STATUS, FaultKind.GARBAGE, FaultKind.NOT_A_RESPONSE, FaultKind.CLOSE, FaultKind.CUT]
)
async def test_faults_of_a_chat_engine_are_tried_again(kind):
    body, sent, seen = await asked(REQUEST, "chat", faults=[Fault(kind=kind)])
    assert body["status"] == "completed"
    assert len(sent) == 2
    assert len({s.key for s in seen}) == 1


@pytest.mark.parametrize(
    ("kind", "status", "usage"), [(FaultKind.INCOMPLETE, "incomplete", True), (FaultKind.USAGE_NULL, "completed", False)]
)
async def test_odd_completions(kind, status, usage):
    body, _, _ = await asked(REQUEST, "chat", faults=[Fault(kind=kind)])
    assert (body["status"], body["usage"] is not None) == (status, usage)


# -- token ids ----------------------------------------------------------------------------------------------------------

ASK = {"return_token_id_information": True}


@pytest.mark.parametrize(
    ("script", "options", "requests"),
    [
        (Options(token_fields=True), {}, 1),  # the fields on the message
        (None, {"request_prompt_and_generation_token_ids": True}, 1),  # beside it
        (None, {}, 1),  # in the log-probabilities, and the prompt from /tokenize (which is not recorded)
        (Options(token_fields=True), {"request_prompt_and_generation_token_ids": True}, 1),  # two sources that agree
    ],
)
async def test_tokens_from_each_source(script, options, requests):
    """D8: the same fields from every source, on the last item of the call (A4)."""
    body, sent, _ = await asked(REQUEST, script=script, **ASK, **options)
    assert len(sent) == requests
    assert (sent[0]["logprobs"], sent[0]["top_logprobs"], sent[0]["return_tokens_as_token_ids"]) == (True, 0, True)
    item = body["output"][-1]
    text = item["content"][0]["text"]
    assert item["prompt_token_ids"] == list(f"<user>{REQUEST['input']}<assistant>".encode())
    assert item["generation_token_ids"] == [GENERATED + b for b in text.encode()]
    assert item["generation_log_probs"] == [LOG_PROB] * len(text.encode())


async def test_the_engine_is_asked_to_tokenize_what_it_was_sent():
    """D8: `/tokenize` stands beside `/v1`, gets what decides about the prompt, and its try is not counted twice."""
    async with ScriptedModel(record=True) as model, PolicyClient(endpoint(model.base_url, **ASK)) as client:
        asked_for = []
        real = model._respond_in_dialect

        async def spy(http):
            asked_for.append((http.path, http.headers["Idempotency-Key"]))
            return await real(http)

        model._respond_in_dialect = spy
        reply = await client.create(orjson.dumps({**REQUEST, "tools": [TOOL]}), idempotency_key="k")
    assert asked_for == [("/v1/chat/completions", "k"), ("/tokenize", "k#tokens")]
    assert reply.attempts == 1


async def test_token_ids_round_trip_through_a_conversation():
    """D9: a second turn's prompt extends all tokens of the first, which its text alone would not give."""
    request = {"model": "scripted", "input": [{"role": "user", "content": "Look."}], "tools": [TOOL]}
    first, _, _ = await asked(request, **ASK)
    call = first["output"][-1]
    request["input"] += [call, {"type": "function_call_output", "call_id": call["call_id"], "output": "seen"}]
    second, (sent, *_), _ = await asked(request, on_prefix_mismatch="error", **ASK)
    seen = call["prompt_token_ids"] + call["generation_token_ids"]
    assert any(i >= GENERATED for i in seen)
    assert second["output"][-1]["prompt_token_ids"][: len(seen)] == seen
    assert sent["messages"][1]["generation_token_ids"] == call["generation_token_ids"]
    _, (sent, *_), _ = await asked(request, send_required_prefix=True, **ASK)
    assert sent["required_prefix_token_ids"] == seen


async def test_a_prompt_that_does_not_extend_what_was_seen_is_noticed():
    """D9: an error where that is wanted, else a new segment."""
    stale = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
    request = {**REQUEST, "input": [{"role": "assistant", "content": "a", **stale}, {"role": "user", "content": "?"}]}
    async with ScriptedModel(Options()) as model:
        from rollstream.scripted import chat

        plain = chat.prompt_ids

        def forgetful(body):
            return plain({**body, "messages": [{k: v for k, v in m.items() if "token" not in k} for m in body["messages"]]})

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(chat, "prompt_ids", forgetful)
            async with PolicyClient(endpoint(model.base_url, on_prefix_mismatch="error", **ASK)) as client:
                with pytest.raises(ModelError, match="do not begin with the 3 tokens"):
                    await client.create(orjson.dumps(request), idempotency_key="k")
            async with PolicyClient(endpoint(model.base_url, **ASK)) as client:
                reply = await client.create(orjson.dumps(request), idempotency_key="k")
    assert reply.body["output"][-1]["prompt_token_ids"][:3] != [1, 2, 3]


async def test_an_engine_without_token_ids_is_an_error_not_a_guess():
    with pytest.raises(ModelError, match="return_token_ids"):
        await asked(REQUEST, sampling_overrides={"return_tokens_as_token_ids": False}, **ASK)
    with pytest.raises(ModelError, match="n = 1"):
        await asked(REQUEST, extra_body={"n": 2}, **ASK)


# -- completions, reward models, audio ----------------------------------------------------------------------------------


async def test_text_completions():
    """D3: one user message with at most one system message before it, joined by a blank line."""
    body, (sent,), (seen,) = await asked({**REQUEST, "instructions": "Be brief.", "max_output_tokens": 99}, "completions")
    assert seen.path == "/v1/completions"
    assert sent == {"model": "scripted", "max_tokens": 99, "prompt": f"Be brief.\n\n{REQUEST['input']}"}
    assert "\\boxed" in body["output"][0]["content"][0]["text"]
    body, (sent, *_), _ = await asked(REQUEST, "completions", **ASK)
    item = body["output"][0]
    assert item["prompt_token_ids"] == list(REQUEST["input"].encode())
    assert item["generation_token_ids"][0] == GENERATED + ord(item["content"][0]["text"][0])


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        ({**REQUEST, "tools": [TOOL]}, "tools"),
        ({**REQUEST, "input": HISTORY}, "render_chat_template"),
        ({**REQUEST, "metadata": {"audio_path": "/a.wav"}}, "audio"),
    ],
)
async def test_what_a_text_completion_cannot_say(request_, says):
    with pytest.raises(DataError, match=says):
        await asked(request_, "completions")


async def test_a_reward_model_gets_the_answers_as_messages():
    """D1 (genrm_model): the metadata is not forwarded; the principle where the template knows it."""
    metadata = {"response_1": "one", "response_2": "two", "principle": "Be fair."}
    _, (sent,), _ = await asked({**REQUEST, "metadata": metadata}, "genrm")
    assert sent["messages"][1:] == [
        {"role": "principle", "content": "Be fair."},
        {"role": "response_1", "content": "one"},
        {"role": "response_2", "content": "two"},
    ]
    assert "metadata" not in sent
    _, (sent,), _ = await asked({**REQUEST, "metadata": metadata}, "genrm", supports_principle=False)
    assert [m["role"] for m in sent["messages"]] == ["user", "response_1", "response_2"]
    with pytest.raises(DataError, match="response_2"):
        await asked({**REQUEST, "metadata": {"response_1": "one"}}, "genrm")


async def test_audio_is_inlined_before_the_text_of_the_last_user_message(tmp_path):
    """D3."""
    (tmp_path / "a.mp3").write_bytes(b"sound")
    given = [{"role": "user", "content": "First."}, {"role": "user", "content": "Transcribe."}]
    _, (sent,), _ = await asked({**REQUEST, "input": given, "metadata": {"audio_path": "a.mp3"}}, audio_root=tmp_path)
    assert sent["messages"][1]["content"] == [
        {"type": "audio_url", "audio_url": {"url": f"data:audio/mpeg;base64,{base64.b64encode(b'sound').decode()}"}},
        {"type": "text", "text": "Transcribe."},
    ]
    assert sent["messages"][0]["content"] == "First."


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({"audio_path": "../a.wav"}, "not inside audio_root"),
        ({"audio_path": "/etc/a.wav"}, "not inside audio_root"),
        ({"audio_path": "a.txt"}, "must end in one of"),
        ({"audio_path": "missing.wav"}, "No such file"),
        ({"audio_path": "a.wav", "audio_data": "data:audio/wav;base64,AA"}, "exactly one"),
        ({"audio_paths": "a.wav"}, "list of paths"),
        ({"audio_data": "http://x/a.wav"}, "data URI"),
    ],
)
async def test_audio_that_is_refused(metadata, says, tmp_path):
    with pytest.raises(DataError, match=says):
        await asked({**REQUEST, "metadata": metadata}, audio_root=tmp_path)


# -- options ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"engine": "responses", "uses_reasoning_parser": True}, "no use for uses_reasoning_parser"),
        ({"engine": "chat", "audio_root": "/a"}, "it belongs to: vllm"),
        ({"engine": "completions", "render_chat_template": True}, "tokenizer"),
        ({"engine": "vlm"}, "engine"),
        ({"engine": "chat", "default_headers": {"a b": "c"}}, "header"),
    ],
)
def test_an_option_that_has_no_effect_is_refused(options, says):
    with pytest.raises(ValidationError, match=says):
        ModelEndpoint(base_url="http://x/v1", name="m", options=options)


async def test_a_tokenizer_that_is_not_there_stops_the_start(tmp_path):
    made = endpoint("http://127.0.0.1:9/v1", "completions", render_chat_template=True, tokenizer=tmp_path)
    with pytest.raises(InfrastructureError, match=r"tokenizer\.json"):
        await PolicyClient(made).start()


# -- replicas -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("session", "count"), [("run/0-0", 2), ("run/0-1", 3), ("", 4), ("é", 7)])
def test_a_session_sticks_to_the_replica_that_its_hash_names(session, count):
    """D3, golden: the first 8 bytes of SHA-256, modulo the number of endpoints."""
    assert replica_of(session, count) == int(hashlib.sha256(session.encode()).hexdigest()[:16], 16) % count


async def test_sessions_are_spread_and_keep_to_their_replica():
    async with ScriptedModel(record=True) as one, ScriptedModel(record=True) as two:
        client = client_of(endpoint(one.base_url).model_copy(update={"replicas": (two.base_url,)}))
        assert isinstance(client, ReplicatedClient)
        async with client:
            for session in range(8):
                calls = (
                    client.create(orjson.dumps(REQUEST), idempotency_key=f"{session}/{n}", session=f"s{session}")
                    for n in range(3)
                )
                await asyncio.gather(*calls)
            assert client.snapshot().answered == 24
    for index, server in enumerate((one, two)):
        sessions = {s.key.split("/")[0] for s in server.seen}
        assert len(server.seen) == 3 * len(sessions)
        assert sessions == {str(n) for n in range(8) if replica_of(f"s{n}", 2) == index}
        assert sessions


async def test_a_replica_that_is_gone_is_passed_over():
    async with ScriptedModel() as gone:
        url = gone.base_url
    session = next(s for s in map(str, range(9)) if replica_of(s, 2) == 0)
    async with ScriptedModel(record=True) as two:
        bounds = {"breaker": {"failures": 1, "cool_down_s": 60.0}, "retries": {"max_attempts": 1}}
        made = ModelEndpoint(base_url=url, replicas=(two.base_url,), name="scripted", **bounds)
        async with client_of(made) as client:
            with pytest.raises(ModelError):
                await client.create(orjson.dumps(REQUEST), idempotency_key="k", session=session)
            reply = await client.create(orjson.dumps(REQUEST), idempotency_key="k2", session=session)
    assert reply.body["status"] == "completed"
    assert [s.key for s in two.seen] == ["k2"]
