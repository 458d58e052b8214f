"""Records of `prompts` in their three forms, and the issue's table of bad input."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import codec, prompts
from schemas.errors import DataError
from schemas.events import Payload, Prompt, Scored
from schemas.identity import Place, RolloutRef
from schemas.prompts import read_prompt
from schemas.topics import MAX_PROMPT_BYTES

PLACE = Place("rollstream.prompts", 3, 42)
ROW = {"responses_create_params": {"input": "hi"}, "answer": "é"}
ROW_JSON = json.dumps(ROW).encode()


def read(value, place=PLACE):
    return read_prompt(value if isinstance(value, bytes) else json.dumps(value).encode(), place)


def refused(value):
    with pytest.raises(DataError) as caught:
        read(value)
    assert not caught.value.retryable
    return str(caught.value)


FORMS = {
    "bare row": lambda row, **_: json.dumps(row).encode(),
    "JSON event": lambda row, **fields: json.dumps({"row": row, **fields}).encode(),
    "Avro event": lambda row, **fields: codec.encode(Prompt(json.dumps(row).encode(), **fields)),
}
EVENTS = [name for name in FORMS if name != "bare row"]


@pytest.mark.parametrize("form", FORMS)
def test_a_row_alone_gets_its_identity_from_its_place(form):
    task = read(FORMS[form](ROW))
    assert task.row == ROW
    assert json.loads(task.row_json) == ROW
    assert task.prompt.run_id == "default"
    assert task.task_id == "rollstream.prompts-3-42"
    assert task.task_index == 3 << 40 | 42
    (ref,) = task.rollouts()
    assert (ref.task_id, ref.rollout_index, ref.attempt, ref.group_size) == (task.task_id, 0, 0, 1)


@pytest.mark.parametrize("form", FORMS)
def test_the_same_bytes_at_the_same_place_are_the_same_task(form):
    data = FORMS[form](ROW)
    assert read(data) == read(data)
    assert read(data).rollouts() != read(data, Place(PLACE.topic, 3, 43)).rollouts()


@pytest.mark.parametrize("form", FORMS)
def test_a_rows_own_ids_win_over_its_place(form):
    row = ROW | {"_ng_task_index": 7, "_ng_rollout_id": "my-rollout"}
    (ref,) = read(FORMS[form](row)).rollouts()
    assert ref.task_index == 7
    assert ref.rollout_id == "my-rollout"


def test_a_bare_row_keeps_its_rollout_and_attempt_numbers():
    (ref,) = read(ROW | {"_ng_task_index": 7, "_ng_rollout_index": 2, "_ng_attempt_index": 1}).rollouts()
    assert (ref.task_id, ref.task_index, ref.rollout_index, ref.attempt) == ("task-7", 7, 2, 1)
    assert ref.rollout_id == "7-2-a1"


def test_a_bare_row_travels_on_as_the_bytes_it_came_as():
    data = b'{ "responses_create_params" : {"input":"hi"}, "n": 12345678901234567890123, "x": 1.0 }'
    assert read(data).row_json == data


def test_a_json_events_row_loses_no_digits():
    assert (
        b"12345678901234567890123"
        in read(b'{"row":{"responses_create_params":{"input":"hi"},"n":12345678901234567890123}}').row_json
    )


@pytest.mark.parametrize("form", EVENTS)
def test_an_event_says_how_many_rollouts_and_whose(form):
    fields = {
        "run_id": "run-1",
        "task_id": "t",
        "task_index": 9,
        "repeats": 3,
        "first_rollout": 2,
        "attempt": 1,
        "group_size": 8,
    }
    refs = read(FORMS[form](ROW, **fields)).rollouts()
    assert refs == [RolloutRef("run-1", "t", 9, i, 1, 8) for i in (2, 3, 4)]


@pytest.mark.parametrize("form", EVENTS)
def test_repeats_of_an_explicit_id_stay_apart(form):
    task = read(FORMS[form](ROW | {"_ng_rollout_id": "mine"}, repeats=2))
    assert [r.rollout_id for r in task.rollouts()] == ["mine-0", "mine-1"]


@given(st.integers(1, 50), st.integers(0, 50))
def test_rollout_ids_of_a_task_are_distinct(repeats, first):
    refs = read(FORMS["JSON event"](ROW, repeats=repeats, first_rollout=first)).rollouts()
    assert len({r.rollout_id for r in refs}) == repeats
    assert {r.task_key for r in refs} == {b"default/rollstream.prompts-3-42"}


@pytest.mark.parametrize("form", EVENTS)
@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"repeats": 0}, "repeats"),
        ({"repeats": prompts.MAX_REPEATS + 1}, "repeats"),
        ({"repeats": -1}, "repeats"),
        ({"repeats": 4, "group_size": 3}, "group_size"),
        ({"first_rollout": -1}, "first_rollout"),
        ({"attempt": -1}, "attempt"),
        ({"task_index": -1}, "task_index"),
        ({"task_index": 2**60}, "task_index"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"timeout_s": -3.0}, "timeout_s"),
        ({"timeout_s": 1e300}, "timeout_s"),
        ({"task_id": "t" * 201}, "task_id"),
    ],
)
def test_an_event_out_of_bounds_is_refused(form, fields, says):
    assert says in refused(FORMS[form](ROW, **fields))


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_timeout_that_is_no_number_is_refused_in_avro_too(value):
    assert "timeout_s" in refused(FORMS["Avro event"](ROW, timeout_s=float(value)))


@pytest.mark.parametrize("run_id", ["", "../x", "a/b", ".hidden", "a\n", "x" * 201, "é", 5, None])
def test_a_run_id_that_could_not_be_a_file_name_is_refused(run_id):
    assert "run_id" in refused({"row": ROW, "run_id": run_id})


@pytest.mark.parametrize("key", ["_ng_rollout_index", "_ng_attempt_index"])
@pytest.mark.parametrize("value", [-1, "1", 1.5, True, None, 2**60])
def test_a_bare_rows_numbers_are_checked(key, value):
    assert key in refused(ROW | {key: value})


# The table "Bad input and faults" of the issue, first line.
BAD = {
    "not JSON": (b"hello", "not JSON"),
    "torn JSON": (ROW_JSON[:-1], "not JSON"),
    "not an object": (b"[1,2]", "expected a JSON object"),
    "empty": (b"", "empty"),
    "unknown Avro schema": (codec.MARKER + b"\0" * 20, "unknown Avro schema 0000000000000000"),
    "another event's Avro": (
        codec.encode(Scored(RolloutRef("r", "t", 0, 0), "e", "a", PLACE, 1.0, Payload(b"{}"))),
        "unknown Avro schema",
    ),
    "damaged Avro": (codec.encode(Prompt(ROW_JSON))[:-3], "cannot be decoded"),
    "20 MB row": (json.dumps({"responses_create_params": {"input": "x" * 20_000_000}}).encode(), "20,0"),
    "lone surrogate": (b'{"responses_create_params":{"input":"\\ud83d"}}', "not JSON"),
    "NaN": (b'{"responses_create_params":{"input":"hi"},"x":NaN}', "not JSON"),
    "unknown key in the params": ({"responses_create_params": {"input": "hi", "max_tokens": 5}}, "max_tokens: unknown key"),
    "event with an unknown key": ({"row": ROW, "repeat": 3}, "unknown key 'repeat' in the prompt event"),
    "event whose row is text": ({"row": json.dumps(ROW)}, "expected a JSON object, found a string"),
    "event with a bad row": ({"row": {}}, "no responses_create_params"),
    "event with a wrong type": ({"row": ROW, "repeats": "many"}, "prompt.repeats"),
    "Avro event with a bad row": (codec.encode(Prompt(b"{}")), "no responses_create_params"),
    "Avro event with NaN in its row": (codec.encode(Prompt(b"[NaN]")), "not JSON"),
    "UTF-16": (ROW_JSON.decode().encode("utf-16"), "not JSON"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_says_what_is_wrong(case):
    value, says = BAD[case]
    assert says in refused(value)


def test_a_record_without_a_value_is_refused():
    with pytest.raises(DataError, match="empty"):
        read_prompt(None, PLACE)


def test_the_largest_row_passes():
    frame = len(json.dumps({"responses_create_params": {"input": ""}}))
    data = json.dumps({"responses_create_params": {"input": "x" * (MAX_PROMPT_BYTES - frame)}}).encode()
    assert len(data) == MAX_PROMPT_BYTES
    assert read(data).row_json == data
    assert "the limit is" in refused(data + b" ")


@given(st.binary(max_size=300))
def test_no_bytes_do_anything_but_parse_or_raise_a_data_error(data):
    for value in (data, codec.MARKER + data, codec.encode(Prompt(ROW_JSON))[:10] + data):
        try:
            read(value)
        except DataError:
            continue


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = [
    "row",
    "run_id",
    "task_id",
    "task_index",
    "repeats",
    "first_rollout",
    "attempt",
    "group_size",
    "environment",
    "agent",
    "timeout_s",
]


@given(st.dictionaries(st.sampled_from(FIELDS), JSON_VALUES, max_size=4), st.booleans())
def test_no_json_event_does_anything_but_parse_or_raise_a_data_error(fields, good_row):
    try:
        task = read(fields | ({"row": ROW} if good_row else {}))
    except DataError:
        return
    assert 1 <= len(task.rollouts()) <= prompts.MAX_REPEATS
    codec.encode(task.prompt)  # whatever is accepted can travel on


def test_one_prompt_may_not_flood_a_worker_with_its_repeats():
    row = {"responses_create_params": {"input": "x" * 10_000}}
    with pytest.raises(DataError, match="several prompts"):
        read_prompt(json.dumps({"row": row, "repeats": 50_000}).encode(), Place("prompts", 0, 0))
    assert len(read_prompt(json.dumps({"row": row, "repeats": 5_000}).encode(), Place("prompts", 0, 0)).rollouts()) == 5_000
