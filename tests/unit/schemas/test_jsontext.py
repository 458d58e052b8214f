"""JSON text: strict in, never lossy, never a dead writer (platform.md A6)."""

import dataclasses
import datetime as dt
import enum
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import jsontext
from schemas.jsontext import Fragment

ANY_TEXT = st.text(st.characters(), max_size=10)  # lone surrogates included
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=20,
)


class Colour(enum.Enum):
    RED = "red"


class Word(enum.StrEnum):
    YES = "yes"


@dataclasses.dataclass
class Point:
    x: int


@given(JSON)
def test_what_is_written_is_utf8_json_and_reads_back(value):
    data = jsontext.dumps(value)
    data.decode("utf-8")
    assert b"\n" not in data
    back = jsontext.loads_lenient(data)
    # Two lone halves side by side are a whole character to every JSON reader; compare as UTF-16, where they are the same.
    assert json.dumps(back) == json.dumps(value)


@given(JSON)
def test_strict_reading_refuses_exactly_lone_surrogates(value):
    data = json.dumps(value).encode()
    try:
        json.dumps(json.loads(data), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        with pytest.raises(ValueError):
            jsontext.loads(data)
    else:
        assert jsontext.loads(data) == json.loads(data)


def test_text_is_not_escaped_and_not_padded():
    assert jsontext.dumps({"a": ["é", "日本"]}) == '{"a":["é","日本"]}'.encode()


def test_a_lone_surrogate_is_written_as_its_escape():
    assert jsontext.dumps({"t": "x\ud800y", "e": "é"}) == '{"t":"x\\ud800y","e":"é"}'.encode()
    assert jsontext.loads_lenient(b'{"t":"x\\ud800y"}') == {"t": "x\ud800y"}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_non_finite_number_is_written_as_null_on_both_paths(value):
    assert jsontext.dumps([value]) == b"[null]"
    assert jsontext.dumps([value, 2**70]) == b"[null,1180591620717411303424]"


@pytest.mark.parametrize(
    "text",
    [
        "NaN",
        "[Infinity]",
        "-Infinity",
        "1e400",
        "[1e400,123456789012345678901]",
        "",
        "{",
        "{'a':1}",
        "[1,]",
        "\ufeff{}",
        "01",
        "nul",
    ],
)
def test_what_is_not_json_is_a_value_error(text):
    for form in (text, text.encode()):
        with pytest.raises(ValueError):
            jsontext.loads(form)
        with pytest.raises(ValueError):
            jsontext.loads_lenient(form)


@pytest.mark.parametrize("data", [b"\xff", b'"\xed\xa0\x80"', '"a"'.encode("utf-16"), b'{"a":"\\ud800"}'])
def test_bytes_that_are_not_utf8_json_are_a_value_error(data):
    with pytest.raises(ValueError):
        jsontext.loads(data)


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**63) - 1, 10**40, -(10**40), 12345678901234567890123])
def test_integers_keep_all_their_digits(number):
    assert jsontext.loads(b"[%d]" % number) == [number]
    assert jsontext.loads(str(number)) == number
    assert jsontext.dumps(number) == b"%d" % number


def test_an_integer_of_absurd_length_is_a_value_error():
    with pytest.raises(ValueError):
        jsontext.loads(b"9" * 10_000)


@pytest.mark.parametrize("depth", [300, 1000, 100_000])
def test_deep_nesting_never_escapes_as_a_recursion_error(depth):
    text = "[" * depth + "]" * depth
    for load in (jsontext.loads, jsontext.loads_lenient):
        try:
            value = load(text)
        except ValueError:
            continue
        assert jsontext.too_deep(value)
        assert jsontext.non_finite_paths(value) == []
        try:
            assert jsontext.dumps(value) == text.encode()
        except ValueError as error:
            assert "nested too deep" in str(error)


def test_depth_is_counted_in_levels():
    def nested(depth):
        return {"a": nested(depth - 1)} if depth else 1

    assert not jsontext.too_deep(nested(jsontext.MAX_DEPTH))
    assert jsontext.too_deep(nested(255))
    assert not jsontext.too_deep([2**70])


def test_a_value_that_holds_itself_is_a_value_error():
    loop = []
    loop.append(loop)
    with pytest.raises(ValueError, match="refers to itself"):
        jsontext.dumps(loop)


@pytest.mark.parametrize("odd", [[], [2**70], ["\ud800"]], ids=["fast", "big integer", "surrogate"])
def test_fragments_are_spliced_on_both_paths(odd):
    written = jsontext.dumps({"row": Fragment(b'{"n":12345678901234567890123,"t":"\\ud800"}'), "odd": odd})
    assert json.loads(written) == {"row": {"n": 12345678901234567890123, "t": "\ud800"}, "odd": odd}


def test_keys_are_spelled_as_json_spells_them():
    keys = {1: 0, 2.5: 0, None: 0, Colour.RED: 0, Word.YES: 0, "s": 0}
    assert json.loads(jsontext.dumps(keys)) == dict.fromkeys(["1", "2.5", "null", "red", "yes", "s"], 0)
    assert jsontext.dumps({True: 1, False: 2}) == b'{"true":1,"false":2}'


@pytest.mark.parametrize("key", [(1, 2), b"bytes", frozenset()])
def test_a_key_json_has_no_form_for_is_a_type_error(key):
    with pytest.raises(TypeError, match="cannot have the key"):
        jsontext.dumps({key: 1})


@pytest.mark.parametrize("value", [Colour.RED, Word.YES, dt.date(2026, 8, 1), Point(3)])
def test_what_the_fast_path_writes_the_slow_path_writes_too(value):
    fast = json.loads(jsontext.dumps([value]))
    assert json.loads(jsontext.dumps([value, 2**70])) == [*fast, 2**70]


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", 1j])
def test_what_json_has_no_form_for_is_a_type_error(value):
    with pytest.raises(TypeError):
        jsontext.dumps(value)


def test_non_finite_numbers_are_found_by_path_in_order():
    value = {"a": math.nan, "b": {"c": [1.0, math.inf]}, "d": [{"e": -math.inf}], "f": 1}
    assert jsontext.non_finite_paths(value) == ["a", "b.c.1", "d.0.e"]
    assert jsontext.non_finite_paths(math.nan) == [""]
    assert jsontext.non_finite_paths([1, "NaN", None]) == []
