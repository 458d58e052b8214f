"""Events to bytes and back, and what garbage does."""

import dataclasses
import io
import types
import typing

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import avro, codec
from schemas.errors import DataError
from schemas.events import EVENTS, Claim, Payload, Prompt, Rollout, ToolCall, ToolCalls, Turn
from schemas.identity import ID_PATTERN, Place, RolloutRef
from schemas.prompts import read_prompt

SIMPLE = {
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False),
    str: st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    bytes: st.binary(max_size=20),
    bool: st.booleans(),
}


def values(hint):
    """A strategy for a field of an event."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint in SIMPLE:
        return SIMPLE[hint]
    if origin in (typing.Union, types.UnionType):
        return st.none() | values(next(a for a in args if a is not type(None)))
    if origin is tuple:
        return st.lists(values(args[0]), max_size=3).map(tuple)
    return events(hint)


def events(cls):
    fields = {name: values(hint) for name, hint in typing.get_type_hints(cls).items()}
    if cls is Prompt:
        fields["run_id"] = st.from_regex(ID_PATTERN, fullmatch=True).map(lambda s: s[:200])
    return st.builds(cls, **fields)


ANY_EVENT = st.one_of([events(cls) for cls in EVENTS])
ROLLOUT = Rollout(
    RolloutRef("run", "task", 3, 1),
    "mcqa",
    "simple_agent",
    Place("rollstream.prompts", 2, 17),
    1_700_000_000_000,
    Payload(b"{}"),
)
TURN = Turn(dataclasses.replace(ROLLOUT, turn=2, settled=(Claim(5, 6), Claim(7, 8)), items=b'{"role":"user"}'))


@given(ANY_EVENT)
def test_every_event_comes_back_as_it_was(event):
    data = codec.encode(event)
    assert codec.is_avro(data)
    assert codec.decode(data, type(event)) == event


@given(ANY_EVENT)
def test_the_generated_code_writes_and_reads_what_fastavro_does(event):
    cls = type(event)
    schema = fastavro.parse_schema(avro.schema_of(cls))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, dataclasses.asdict(event))
    body = codec.encode(event)[10:]
    assert body == out.getvalue()
    assert codec.decode(codec.MARKER + codec.encode(event)[2:10] + out.getvalue(), cls) == event


def test_an_array_in_blocks_with_their_sizes_is_read():
    """Writers in other languages may split an array, and give each block's size in bytes (Avro 1.12, "Arrays")."""
    body = codec.encode(Turn(dataclasses.replace(ROLLOUT, settled=(Claim(1, 2), Claim(3, 4)))))
    assert body.count(bytes([4, 2, 4, 6, 8, 0])) == 1
    split = body.replace(bytes([4, 2, 4, 6, 8, 0]), bytes([1, 4, 2, 4, 2, 6, 8, 0]))
    assert codec.decode(split, Turn).rollout.settled == (Claim(1, 2), Claim(3, 4))


def test_the_bytes_are_avro_single_object_encoding():
    """Marker, fingerprint (little endian), then zig-zag varints and length-prefixed strings: written out by hand."""
    data = codec.encode(Prompt(b"{}", run_id="r", repeats=2))
    assert data[:2] == b"\xc3\x01"
    assert len(data[2:10]) == 8
    #                      row       run_id  task_id, index: null  repeats=2  first  attempt  five nulls
    assert data[10:] == b"\x04{}" + b"\x02r" + b"\x00\x00" + b"\x04" + b"\x00" + b"\x00" + b"\x00" * 4


@given(st.binary(max_size=200))
def test_garbage_is_a_data_error(data):
    for cls in EVENTS:
        with pytest.raises(DataError):
            codec.decode(data, cls)


@given(ANY_EVENT, st.data())
@settings(max_examples=300)
def test_a_damaged_event_is_a_data_error_or_another_event_of_its_class(event, data):
    raw = bytearray(codec.encode(event))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(10, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert type(codec.decode(bytes(raw), type(event))) is type(event)
    except DataError as error:
        assert type(event).__name__ in str(error)


def test_every_truncation_is_a_data_error():
    whole = codec.encode(TURN)
    for length in range(len(whole)):
        with pytest.raises(DataError):
            codec.decode(whole[:length], Turn)


def test_bytes_after_the_end_are_a_data_error():
    with pytest.raises(DataError, match="left over"):
        codec.decode(codec.encode(TURN) + b"\x00", Turn)


def test_an_unknown_schema_is_named():
    with pytest.raises(DataError, match="unknown Avro schema 0102030405060708"):
        codec.decode(codec.MARKER + bytes(range(1, 9)) + b"\x00", Turn)


def test_an_event_of_another_class_is_not_read_as_this_one():
    with pytest.raises(DataError, match="unknown Avro schema"):
        codec.decode(codec.encode(TURN), Prompt)


def test_a_damaged_id_does_not_pass_as_an_id():
    data = codec.encode(Prompt(b"{}", run_id="run"))
    with pytest.raises(DataError, match="run_id"):
        read_prompt(data.replace(b"run", b"../"), Place("prompts", 0, 0))


def test_a_lone_surrogate_in_a_tool_call_is_escaped_where_utf8_cannot_hold_it():
    call = ToolCall("call_1", "say", '{"text":"\ud83d"}')
    back = codec.decode(codec.encode(ToolCalls(ROLLOUT, calls=(call,))), ToolCalls)
    assert back.calls[0].arguments == '{"text":"\\ud83d"}'
    assert back.rollout == ROLLOUT


def test_a_number_beyond_avros_long_is_a_data_error():
    with pytest.raises(DataError, match="cannot be written"):
        codec.encode(Prompt(b"{}", task_index=2**63))


def test_a_rollouts_state_grows_by_a_few_bytes_a_settled_part():
    def size(parts):
        return len(codec.encode(Turn(dataclasses.replace(ROLLOUT, settled=(Claim(60_000, 0xDEADBEEF),) * parts))))

    assert (size(1000) - size(0)) / 1000 <= 9
