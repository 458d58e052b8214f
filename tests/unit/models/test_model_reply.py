import copy

import orjson
import pytest

from services.models import reply

GOOD = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]},
        {"role": "assistant", "content": "easy form"},
        {"type": "function_call", "name": "f", "call_id": "c", "arguments": "{}"},
    ],
    "usage": {"input_tokens": 1},
    "incomplete_details": None,
}


def changed(**fields):
    return {**copy.deepcopy(GOOD), **fields}


@pytest.mark.parametrize(
    "body",
    [
        GOOD,
        {"output": []},
        changed(usage=None),
        changed(incomplete_details={"reason": "max_output_tokens"}, status="incomplete"),
    ],
)
def test_responses_objects_pass(body):
    assert reply.problem(body) is None


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ([], "list"),
        ("text", "str"),
        (None, "NoneType"),
        ({"object": "chat.completion", "choices": []}, "right API"),
        ({}, "output"),
        (changed(output=None), "output"),
        (changed(output={"0": 1}), "output"),
        (changed(output=["x"]), "output[0]"),
        (changed(output=[{"type": 7}]), "output[0]"),
        (changed(output=[{}]), "output[0]"),
        (changed(output=[{"type": "message", "role": "assistant", "content": 5}]), "content"),
        (changed(usage=[]), "usage"),
        (changed(incomplete_details="length"), "incomplete_details"),
        (changed(metadata=[]), "metadata"),
        (changed(error="boom"), "error"),
        (changed(status="failed"), "failed"),
        (changed(status="queued"), "queued"),
    ],
)
def test_what_is_none_is_named(body, word):
    assert word in reply.problem(body)


def test_an_odd_status_is_not_our_business():
    assert reply.problem(changed(status=["x"])) is None


@pytest.mark.parametrize("raw", [b"", b"<html>", b'{"output": [', b'{"output": [], "x": NaN}', b"[" * 100_000])
def test_bytes_that_are_no_json(raw):
    body, problem = reply.parse(raw)
    assert body is None
    assert problem


def test_lone_surrogates_are_let_in():
    body, problem = reply.parse(b'{"output": [{"role": "assistant", "content": "\\ud83d"}]}')
    assert problem is None
    assert body["output"][0]["content"] == "\ud83d"


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        (400, {"error": {"code": "context_length_exceeded", "message": "too long"}}, True),
        (400, {"error": {"message": "This model's maximum context length is 4096 tokens"}}, True),
        (400, {"message": "max_tokens must be at least 1, got -5", "code": 400}, True),
        (400, {"error": {"code": "unsupported_parameter", "message": "'max_tokens' is not supported"}}, False),
        (400, {"error": {"message": "no such tool"}}, False),
        (500, {"error": {"code": "context_length_exceeded"}}, False),
        (413, {"error": {"message": "context length"}}, False),
    ],
)
def test_context_overflow_is_told_by_code_and_text(status, error, expected):
    assert reply.overflows(status, orjson.dumps(error)) is expected


def test_context_overflow_in_plain_text():
    assert reply.overflows(400, b"Input exceeds the Context Length of the model")


def test_the_reply_for_an_overflow_is_a_responses_object():
    from openai.types.responses import Response

    request = {"model": "m", "input": "x", "metadata": {"a": "b"}, "temperature": 0.5, "tools": []}
    body = reply.overflow_body(orjson.dumps(request), "m", "key")
    assert reply.problem(body) is None
    Response.model_validate(body)
    assert body["incomplete_details"] == {"reason": "max_output_tokens"}
    assert body["metadata"] == {"a": "b", "context_overflow": "true"}
    assert body["temperature"] == 0.5
    assert [c["text"] for i in body["output"] for c in i["content"]] == [""]
    assert reply.overflow_body(b"not json", "m", "key")["id"] == body["id"]


def test_the_openai_type_explains():
    assert "output: Input should be a valid list" in reply.explain(reply.overflow_body(b"{}", "m", "k") | {"output": "text"})
    assert "more" in reply.explain({})
    assert reply.explain(reply.overflow_body(b"{}", "m", "k")) == ""
