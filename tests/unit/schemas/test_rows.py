"""Dataset rows (platform.md A1, A2): every key that may stand in one, and what is refused, by name."""

import json

import pytest

from schemas import jsontext
from schemas.errors import DataError
from schemas.rows import CreateParams, agent_name, check_row, parse_row

# platform.md A2: each allowed key with a value it takes and one it does not.
KEYS = {
    "background": (True, "yes"),
    "include": (["a"], "a"),
    "input": ([{"role": "user", "content": "hi"}], 5),
    "instructions": ("be brief", ["be brief"]),
    "max_output_tokens": (10, "10"),
    "max_tool_calls": (3, 3.5),
    "metadata": ({"extra_body": "{}"}, "x"),
    "model": ("m", 1),
    "parallel_tool_calls": (False, 0),
    "previous_response_id": ("r", {}),
    "prompt": ({"id": "p"}, "p"),
    "reasoning": ({"effort": "low"}, "low"),
    "service_tier": ("auto", 1),
    "store": (True, 1),
    "temperature": (0.7, "hot"),
    "text": ({"format": {}}, "json"),
    "tool_choice": ({"type": "function", "name": "f"}, 1),
    "tools": ([{"type": "function", "name": "f"}], {"type": "function"}),
    "top_logprobs": (3, True),
    "top_p": (1, [1]),
    "truncation": ("auto", False),
    "user": ("u", 1),
    "stream": (False, True),
}


def row(**params):
    return {"responses_create_params": {"input": "hi", **params}}


def refused(value):
    with pytest.raises(DataError) as caught:
        parse_row(value if isinstance(value, bytes) else json.dumps(value).encode())
    return str(caught.value)


def test_the_keys_are_those_of_the_specification():
    assert set(CreateParams.model_fields) == set(KEYS)


@pytest.mark.parametrize("key", KEYS)
def test_each_key_takes_its_type_and_null_and_names_itself_otherwise(key):
    good, bad = KEYS[key]
    assert parse_row(json.dumps(row(**{key: good})))["responses_create_params"][key] == good
    assert f"responses_create_params.{key}" in refused(row(**{key: bad}))
    if key == "input":
        assert "responses_create_params.input" in refused(row(input=None))
    else:
        check_row(row(**{key: None}))


@pytest.mark.parametrize("key", ["max_tokens", "Input", "n", "", "__class__"])
def test_an_unknown_key_is_named(key):
    assert f"responses_create_params.{key}: unknown key" in refused(row(**{key: 1}))


def test_input_may_not_be_missing():
    assert refused({"responses_create_params": {}}) == "responses_create_params.input: missing"


def test_many_mistakes_are_one_short_line():
    message = refused(row(**{f"k{i}": i for i in range(30)}))
    assert "(and 27 more)" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[1]", "expected a JSON object, found a list"),
        (b"null", "found null"),
        (b'"row"', "found a string"),
        (b"3", "found a number"),
        (b"true", "found a boolean"),
        (b"{}", "has no responses_create_params"),
        (b'{"responses_create_params": null}', "responses_create_params"),
        (b'{"responses_create_params": {"input": "hi", "temperature": NaN}}', "not JSON"),
        (b'{"responses_create_params": {"input": "\\ud800"}}', "not JSON"),
        (b'{"responses_create_params": {"input": "\xff"}}', "not JSON"),
    ],
)
def test_what_is_not_a_row_says_why(value, says):
    assert says in refused(value)


@pytest.mark.parametrize("index", [-1, 1.5, "1", True, [], 2**63, 2**70, {}])
def test_a_task_index_is_a_whole_number_that_every_reader_can_hold(index):
    assert "_ng_task_index" in refused(row() | {"_ng_task_index": index})


@pytest.mark.parametrize("rollout_id", ["", ".x", "-x", "_x", "a/b", "a b", "é", "a\n", "x" * 201, 1, [], "../x"])
def test_an_explicit_rollout_id_is_rejected_never_repaired(rollout_id):
    assert "_ng_rollout_id" in refused(row() | {"_ng_rollout_id": rollout_id})


@pytest.mark.parametrize("rollout_id", ["a", "0", "A.b_c-d", "x" * 200])
def test_an_explicit_rollout_id_of_the_right_form_passes(rollout_id):
    check_row(row() | {"_ng_rollout_id": rollout_id, "_ng_task_index": 0})


@pytest.mark.parametrize("ref", ["agent", 1, [], {}, {"name": 1}, {"type": "responses_api_agents"}])
def test_an_agent_ref_of_another_shape_is_refused(ref):
    assert "agent_ref" in refused(row() | {"agent_ref": ref})


def test_the_agents_name_may_come_without_a_type_or_not_at_all():
    assert agent_name({"agent_ref": {"type": "responses_api_agents", "name": "mcqa_simple_agent"}}) == "mcqa_simple_agent"
    assert agent_name({"agent_ref": {"name": "a"}}) == "a"
    assert agent_name({}) is None
    assert agent_name({"agent_ref": None}) is None


def test_verifier_data_of_any_shape_is_carried_unchanged():
    extra = {"expected_answer": "B", "options": [{"A": "x"}], "n": 12345678901234567890123, "nested": {"deep": [None, 1.5]}}
    assert parse_row(json.dumps(row() | extra)) == row() | extra


def test_a_row_nested_without_end_is_refused():
    assert "not JSON" in refused(b'{"responses_create_params":{"input":"hi"},"x":' + b"[" * 5000 + b"]" * 5000 + b"}")
    deep = b'{"responses_create_params":{"input":"hi"},"x":' + b"[" * 400 + b"]" * 400 + b"}"
    assert f"deeper than {jsontext.MAX_DEPTH} levels" in refused(deep)


def test_a_long_offender_is_cut_in_the_message():
    assert len(refused(row() | {"_ng_rollout_id": "/" * 100_000})) < 300
    assert len(refused(row(**{"k" * 100_000: 1}))) < 300
