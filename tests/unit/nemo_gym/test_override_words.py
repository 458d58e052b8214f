"""Words that change a configuration (platform.md E1), in Hydra's basic grammar."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollstream.nemo_gym.answers import written
from rollstream.nemo_gym.errors import ConfigurationError
from rollstream.nemo_gym.overrides import MAX_DEPTH, Mode, Override, parse, tree


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("a=1", 1),
        ("a=-1_000", -1000),
        ("a=1.5e3", 1500.0),
        ("a=.5", 0.5),
        ("a=true", True),
        ("a=False", False),
        ("a=null", None),
        ("a=", ""),
        ("a=text with spaces", "text with spaces"),
        ("a=http://host:8000/v1?x=1&y=2", "http://host:8000/v1?x=1&y=2"),
        ("a='1'", "1"),
        ("a='it\\'s'", "it's"),
        ('a="a,b]"', "a,b]"),
        ("a=[]", []),
        ("a=[x.yaml, y.yaml,\n z.yaml]", ["x.yaml", "y.yaml", "z.yaml"]),
        ("a=[1,[2,'3'],{b: c}]", [1, [2, "3"], {"b": "c"}]),
        ("a={b:1,c: {d: http://x:1/v1}}", {"b": 1, "c": {"d": "http://x:1/v1"}}),
        ("a=${policy_base_url}", "${policy_base_url}"),
        ("a=[${oc.env:X,y},z]", ["${oc.env:X,y}", "z"]),
        ("a=12abc", "12abc"),
        ("a=2026-08-30", "2026-08-30"),
    ],
)
def test_e1_values(word, value):
    assert parse(word) == Override(("a",), value, Mode.CHANGE)
    assert type(parse(word).value) is type(value)


def test_e1_the_three_forms_and_deletion():
    assert parse("a.b-c.d=1") == Override(("a", "b-c", "d"), 1, Mode.CHANGE)
    assert parse("+a.b=1").mode is Mode.ADD
    assert parse("++a.b=1").mode is Mode.FORCE
    assert parse("~a.b") == Override(("a", "b"), None, Mode.DELETE)
    assert math.isinf(parse("a=-inf").value)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("a", "write key=value"),
        ("=1", "write key=value"),
        ("+++a=1", "write key=value"),
        ("~a=1", "write key=value"),
        ("a..b=1", "a part of the key is empty"),
        ("a=[1", r"',' is missing at character 3"),
        ("a=[1,2", r"',' is missing"),
        ("a={b:1", r"',' is missing"),
        ("a={b}", r"':' is missing at character 3"),
        ("a='x", "a quote that does not end at character 1"),
        ("a='x'y", "something follows the value at character 4"),
        ("a=[1]]", "something follows the value"),
        ("a=" + "[" * (MAX_DEPTH + 2), "inside each other"),
    ],
)
def test_e1_what_is_no_word_is_said_with_its_place(word, said):
    with pytest.raises(ConfigurationError, match=said):
        parse(word)


def test_e1_words_make_one_tree_and_the_later_wins():
    assert tree([parse("a.b=1"), parse("+a.c=2"), parse("++a.b=3"), parse("~x")]) == {"a": {"b": 3, "c": 2}}
    with pytest.raises(ConfigurationError, match=r"a\.b\.c: b was set to a plain value"):
        tree([parse("a.b=1"), parse("a.b.c=2")])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(VALUES)
def test_what_is_written_is_read_again(value):
    assert parse(f"key={written(value)}").value == value


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="+~=.,:[]{}'\"\\$ ab1\n", max_size=40) | st.text(max_size=60))
def test_any_text_is_a_word_or_an_error(text):
    try:
        found = parse(text)
    except ConfigurationError:
        return
    assert all(found.path)


def test_a_megabyte_is_read_in_time():
    assert len(parse("a=[" + "x," * 200_000 + "y]").value) == 200_001
    with pytest.raises(ConfigurationError):
        parse("a=[" + "'" * 999_999)
