"""Responses to Chat Completions and back (platform.md D4, D5)."""

import itertools
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import DataError
from services.models.convert import chat_reply, think, usage
from services.models.convert.chat_messages import chat_messages
from services.models.convert.chat_request import chat_request
from services.models.wire import UnusableReplyError

REASONING = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": t} for t in ("One.", "", "Two.")]}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": t} for t in ("Let me ", "look.")]}
CALL = {"type": "function_call", "call_id": "call_1", "id": "fc_1", "name": "look", "arguments": '{"at": "it"}'}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "seen"}
TOOL = {"type": "function", "name": "look", "description": "Looks.", "parameters": {"type": "object"}, "strict": True}
TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}


def items_of(message, *, parses=True, finish="stop"):
    """The output items of a chat message."""
    return chat_reply.output_items(message, "0f", parses_reasoning=parses, whole=finish == "stop")


def response_of(completion, request=None, *, parses=True):
    choice = chat_reply.choice_of(completion)
    items = items_of(chat_reply.message_of(choice), parses=parses, finish=choice.get("finish_reason"))
    return chat_reply.to_response(completion, request or {}, items, "0f", 7)


def completion(message, finish="stop", **fields):
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 5,
        "model": "m",
        "choices": [{"message": message, "finish_reason": finish}],
        **fields,
    }


def test_a_string_is_one_user_message():
    assert chat_messages("Hello") == [{"role": "user", "content": "Hello"}]
    assert chat_messages([{"role": "user", "content": "Hello"}]) == [{"role": "user", "content": "Hello"}]


def test_what_the_model_said_in_a_row_is_one_message():
    """D4: texts in order, thoughts in think blocks (empty ones skipped), calls beside them, the output as a tool message."""
    assert chat_messages([{"role": "user", "content": "?"}, REASONING, SAID, CALL, RESULT, SAID]) == [
        {"role": "user", "content": "?"},
        {
            "role": "assistant",
            "content": "<think>One.</think><think>Two.</think>Let me look.",
            "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": "it"}'}}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "seen"},
        {"role": "assistant", "content": "Let me look."},
    ]


def test_a_call_alone_has_null_content_and_nothing_has_no_calls():
    assert chat_messages([CALL])[0]["content"] is None
    assert chat_messages([{"role": "assistant", "content": ""}]) == [{"role": "assistant", "content": None}]
    assert chat_messages([{"type": "reasoning", "summary": []}]) == [{"role": "assistant", "content": None}]


def test_chat_shaped_items_are_taken_as_they_are():
    inline = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    tool = {"role": "tool", "tool_call_id": "c", "content": "4"}
    given = [{"role": "assistant", "content": None, "tool_calls": inline}, tool]
    assert chat_messages(given) == [{"role": "assistant", "content": None, "tool_calls": inline}, tool]


def test_parts():
    parts = [
        {"type": "input_text", "text": "What is it?"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA"},
        {"type": "input_image", "image_url": "http://x/y", "detail": "low"},
        {"type": "input_video", "video_url": "http://x/z"},
        {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
    ]
    assert chat_messages([{"role": "user", "content": parts}])[0]["content"] == [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "auto"}},
        {"type": "image_url", "image_url": {"url": "http://x/y", "detail": "low"}},
        {"type": "video_url", "video_url": {"url": "http://x/z"}},
        {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
    ]
    listed = {**RESULT, "output": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]}
    assert chat_messages([listed])[0]["content"] == "ab"


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ({"role": "user", "content": [{"type": "input_image", "image_url": ""}]}, "image_url"),
        ({"role": "user", "content": [{"type": "input_file", "file_id": "secret"}]}, "input_file"),
        ({"role": "user", "content": [{"type": "input_video", "video_url": "a", "video": "b"}]}, "exactly one"),
        ({"role": "user", "content": None}, "no content"),
        ({"role": "stranger", "content": "secret"}, "stranger"),
        ({**RESULT, "output": [{"type": "input_image", "image_url": "secret"}]}, "input_image"),
        ({"type": "web_search_call", "id": "secret"}, "web_search_call"),
        ({**SAID, "prompt_token_ids": [1]}, "generation_token_ids"),
        ("secret", "str"),
    ],
)
def test_what_has_no_form_is_an_error_that_names_its_type_and_shows_nothing(item, says):
    with pytest.raises(DataError, match=says) as e:
        chat_messages([item])
    assert "secret" not in str(e.value)


def test_instructions_take_in_the_leading_system_messages():
    """D4: one system message at position 0, parts joined by a blank line; later ones stay."""
    given = [
        {"role": "system", "content": "B"},
        {"role": "developer", "content": [{"type": "input_text", "text": "C"}]},
        {"role": "user", "content": "?"},
        {"role": "system", "content": "D"},
    ]
    assert chat_messages(given, "A") == [
        {"role": "system", "content": "A\n\nB\n\nC"},
        {"role": "user", "content": "?"},
        {"role": "system", "content": "D"},
    ]
    assert [m["role"] for m in chat_messages(given)] == ["system", "developer", "user", "system"]


def test_token_fields_stay_on_the_message_that_contains_their_item():
    """D4, D9: unchanged, and those of the last call where several are gathered."""
    later = {"prompt_token_ids": [1, 2, 3, 4], "generation_token_ids": [5], "generation_log_probs": [-1.0]}
    (message,) = chat_messages([{**REASONING}, {**CALL, **TOKENS}])
    assert {k: message[k] for k in TOKENS} == TOKENS
    (message,) = chat_messages([{**SAID, **TOKENS}, {**SAID, **later}])
    assert {k: message[k] for k in TOKENS} == later


def test_parameters():
    request = {
        "model": "m",
        "input": "?",
        "max_output_tokens": 9,
        "temperature": 0,
        "top_p": None,
        "reasoning": {"effort": "low", "summary": "auto"},
        "tools": [TOOL],
        "tool_choice": {"type": "function", "name": "look"},
        "parallel_tool_calls": False,
        "metadata": {"a": "b"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {}, "strict": True}},
    }
    assert chat_request(request) == {
        "model": "m",
        "messages": [{"role": "user", "content": "?"}],
        "max_tokens": 9,
        "temperature": 0,
        "reasoning_effort": "low",
        "tools": [
            {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}}
        ],
        "tool_choice": {"type": "function", "function": {"name": "look"}},
        "parallel_tool_calls": False,
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": True}},
    }


def test_without_tools_their_parameters_are_dropped_but_none_can_be_required():
    request = {"model": "m", "input": "?", "tools": [], "tool_choice": "auto", "parallel_tool_calls": True}
    assert chat_request(request) == {"model": "m", "messages": [{"role": "user", "content": "?"}]}
    with pytest.raises(DataError, match="required"):
        chat_request({**request, "tool_choice": "required"})


@pytest.mark.parametrize(
    "field", [{"previous_response_id": "r"}, {"prompt": {"id": "p"}}, {"background": True}, {"tools": [{"type": "web_search"}]}]
)
def test_what_would_change_the_answer_is_not_dropped_in_silence(field):
    with pytest.raises(DataError, match="cannot be represented"):
        chat_request({"model": "m", "input": "?", **field})


def test_a_completion_becomes_items_in_order():
    """D5: thoughts (the engine's first), message, calls; ids from the call's mark."""
    message = {
        "role": "assistant",
        "reasoning_content": "Zero.",
        "content": "<think>One.</think>Said.<think>Two.</think>",
        "tool_calls": [{"id": "call_9", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }
    reasoning, said, call = items_of(message)
    assert [s["text"] for s in reasoning["summary"]] == ["Zero.", "One.", "Two."]
    assert reasoning["id"] == "rs_0f"
    assert "status" not in reasoning  # the OpenAI endpoint would reject it when it is sent back (A3)
    assert (said["id"], said["content"]) == ("msg_0f", [{"type": "output_text", "text": "Said.", "annotations": []}])
    assert (call["id"], call["call_id"], call["name"], call["status"]) == ("call_9", "call_9", "f", "completed")


@pytest.mark.parametrize(
    ("message", "kinds"),
    [
        ({"content": None}, ["message"]),
        ({"content": ""}, ["message"]),
        ({"content": "<think>Hm.</think>"}, ["reasoning"]),
        ({"content": None, "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]}, ["function_call"]),
        ({"content": "<think>never closed"}, ["message"]),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, ["message"]),
        ({"content": None, "refusal": "No."}, ["message"]),
    ],
)
def test_output_is_never_empty(message, kinds):
    assert [i["type"] for i in items_of(message)] == kinds


def test_a_refusal_is_a_part_of_its_own():
    assert items_of({"content": None, "refusal": "No."})[0]["content"] == [{"type": "refusal", "refusal": "No."}]


def test_without_a_reasoning_parser_nothing_is_parsed_and_parsed_reasoning_is_a_wrong_setting():
    (item,) = items_of({"content": "<think>Hm.</think>Said."}, parses=False)
    assert item["content"][0]["text"] == "<think>Hm.</think>Said."
    with pytest.raises(UnusableReplyError, match="uses_reasoning_parser"):
        items_of({"content": "Said.", "reasoning": "Hm."}, parses=False)


@pytest.mark.parametrize(
    ("finish", "status", "reason"),
    [
        ("stop", "completed", None),
        ("tool_calls", "completed", None),
        (None, "completed", None),
        ("length", "incomplete", "max_output_tokens"),
        ("content_filter", "incomplete", "content_filter"),
    ],
)
def test_finish_reasons(finish, status, reason):
    response = response_of(
        completion({"content": "Said."}, finish), {"temperature": 0.5, "tools": [TOOL], "max_output_tokens": 3}
    )
    assert response["status"] == status
    assert (response["incomplete_details"] or {}).get("reason") == reason
    assert (response["id"], response["created_at"], response["model"], response["object"]) == ("resp_0f", 5, "m", "response")
    assert (response["temperature"], response["tools"], response["max_output_tokens"]) == (0.5, [TOOL], 3)


GOLDEN_USAGE = [
    (
        {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 16, "prompt_tokens_details": {"cached_tokens": 0}},
        (10, 5, 16, 0, None),
    ),
    ({"prompt_tokens": 10, "completion_tokens": 5, "cached_input_tokens": 4}, (10, 5, None, 4, None)),
    ({"prompt_tokens": 1, "cache_read_input_tokens": 2, "reasoning_output_tokens": 3}, (1, None, None, 2, 3)),
    (
        {"completion_tokens_details": {"reasoning_tokens": 7}, "reasoning_output_tokens": 1, "cached_input_tokens": None},
        (None, None, None, None, 7),
    ),
]


@pytest.mark.parametrize(("given", "expected"), GOLDEN_USAGE)
def test_usage_keeps_the_providers_total_and_what_is_unknown(given, expected):
    """D5; A5: null is never turned into 0."""
    found = usage.from_chat(given)
    assert (
        found["input_tokens"],
        found["output_tokens"],
        found["total_tokens"],
        found["input_tokens_details"]["cached_tokens"],
        found["output_tokens_details"]["reasoning_tokens"],
    ) == expected
    assert usage.from_chat(None) is None


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"error": {"message": "no"}},
        {"choices": []},
        {"choices": [{"message": {}}, {"message": {}}]},
        {"choices": [{"text": "a"}]},
        {"choices": [{"message": {"content": 5}}]},
        {"choices": [{"message": {"content": None, "tool_calls": [{"function": {}}]}}]},
    ],
)
def test_what_is_no_completion_is_told(body):
    with pytest.raises(chat_reply.BadCompletionError):
        response_of(body)


@given(st.lists(st.tuples(st.booleans(), st.text(max_size=20)), max_size=8))
def test_thoughts_and_text_survive_a_round_trip(pieces):
    pieces = [(t, s.replace("<", "(")) for t, s in pieces]
    text = "".join(think.wrapped(s) if t else s for t, s in pieces)
    assert think.split(text) == ([s for t, s in pieces if t], "".join(s for t, s in pieces if not t))


@given(st.text(alphabet="<>/think \ud83d", max_size=200))
def test_any_text_splits_without_loss(text):
    thoughts, rest = think.split(text)
    assert len(rest) + sum(len(think.wrapped(t)) for t in thoughts) == len(text)


def test_a_megabyte_of_openings_takes_no_time():
    started = time.process_time()
    think.split("<think>" * 150_000)
    think.split("<think></think>" * 70_000)
    assert time.process_time() - started < 2


@given(
    st.lists(
        st.one_of(
            st.builds(lambda t: {"role": "user", "content": t}, st.text(max_size=9)),
            st.builds(lambda t: {"role": "assistant", "content": t}, st.text(max_size=9)),
            st.just(REASONING),
            st.just(CALL),
            st.just(RESULT),
        ),
        max_size=12,
    )
)
def test_no_two_assistant_messages_stand_next_to_each_other(items):
    roles = [m["role"] for m in chat_messages(items)]
    assert ("assistant", "assistant") not in set(itertools.pairwise(roles))
    assert sum(r == "user" for r in roles) == sum(i.get("role") == "user" for i in items)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda c: (
            st.lists(c, max_size=3)
            | st.dictionaries(
                st.sampled_from(["type", "role", "content", "summary", "text", "output", "tool_calls", "call_id"]),
                c,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_whatever_the_input_is_it_is_messages_or_a_data_error(value):
    try:
        messages = chat_messages(value)
    except DataError:
        return
    json.dumps(messages)
