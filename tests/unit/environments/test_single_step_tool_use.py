"""single_step_tool_use_with_argument_comparison: properties of comparing and pairing, what the cases do not show, time."""

from __future__ import annotations

import itertools
import json
import random
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.registry import Registry
from environments.single_step_tool_use_with_argument_comparison.categories import Category
from environments.single_step_tool_use_with_argument_comparison.comparing import Call, Comparator, ExpectationError
from environments.single_step_tool_use_with_argument_comparison.environment import (
    SingleStepConfig,
    SingleStepToolUseWithArgumentComparison,
)
from environments.single_step_tool_use_with_argument_comparison.pairing import paired
from environments.single_step_tool_use_with_argument_comparison.scoring import ComparatorConfig, score_calls
from environments.testing import EnvironmentHarness, function_call, response
from environments.verdict import Verdict
from schemas.errors import DataError

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
LEAVES = st.none() | st.booleans() | st.integers() | FLOATS | st.text(max_size=20)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.text(max_size=4), JSON, max_size=3)


def compare(wanted: Any, given: Any, threshold: float = 0.1) -> Category:
    return Comparator(threshold, 1e-6).compare(Call("f", json.dumps(wanted)), Call("f", json.dumps(given)))


def verify(expected: Any, *output: Any, **config: Any) -> Verdict:
    comparator = {"word_count_similarity_threshold": 0.1, **config}
    made = SingleStepConfig.model_validate({"tool_call_comparator_config": comparator})
    harness = EnvironmentHarness(SingleStepToolUseWithArgumentComparison(made))
    harness.seed({"responses_create_params": {"input": "?"}, "expected_action": expected})
    return harness.verify(response(*output))


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "function_call", "name": name, "arguments": json.dumps(arguments)}


def batch(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function_call_batch", "calls": list(calls)}


@given(OBJECTS)
def test_arguments_match_themselves_at_every_threshold_up_to_a_half(value):
    assert compare(value, value, threshold=0.5) is Category.CALL


@given(JSON, st.integers(0, 100))
def test_nesting_changes_nothing(value, depth):
    other = 1 if isinstance(value, str) else "x"
    outer, wrong = value, other
    for _ in range(depth):
        outer, wrong = {"a": [outer]}, {"a": [wrong]}
    assert compare(outer, outer, threshold=0.5) is Category.CALL
    assert compare(outer, wrong) is (Category.TYPE)


@given(OBJECTS, st.text(max_size=4), JSON)
def test_a_further_key_is_wrong(value, key, more):
    if key not in value:
        assert compare(value, {**value, key: more}) is Category.KEYS
        assert compare({**value, key: more}, value) is Category.KEYS


@given(st.lists(JSON, max_size=4), JSON)
def test_a_longer_list_is_wrong(value, more):
    assert compare(value, [*value, more]) is Category.LIST_LENGTH


@given(st.integers() | FLOATS)
def test_a_number_is_not_its_text(value):
    assert compare({"n": value}, {"n": json.dumps(value)}) is Category.TYPE
    assert compare({"n": json.dumps(value)}, {"n": value}) is Category.TYPE


@given(st.text(), st.text(), st.floats(0, 1))
def test_similarity_is_the_share_of_common_words(one, other, threshold):
    """An independent way to count: words are crossed out one by one."""
    ours, theirs = one.lower().split(), other.lower().split()
    left = list(theirs)
    common = sum(1 for w in ours if w in left and (left.remove(w) or True))
    fits = one == other if min(len(ours), len(theirs)) < 2 else common / (len(ours) + len(theirs)) >= threshold
    assert compare(one, other, threshold) is (Category.CALL if fits else Category.VALUE)


@given(st.text(), OBJECTS)
def test_whatever_a_model_writes_is_compared(text, wanted):
    result = Comparator(0.1, 1e-6).compare(Call("f", json.dumps(wanted)), Call("f", text))
    assert isinstance(result, Category)


@pytest.mark.parametrize(
    ("wanted", "given_", "category"),
    [
        ("Infinity", "Infinity", Category.VALUE),
        ("NaN", "NaN", Category.VALUE),
        ("0.5", "0.500001", Category.VALUE),
        ("0.5", "0.5000009", Category.CALL),
        ("1", "1.0", Category.TYPE),
        ("1.0", "1", Category.TYPE),
        ("0", "false", Category.CALL),
        ("false", "0", Category.TYPE),
        ('"Two  Words"', '"two words"', Category.CALL),
        ('"One"', '"one"', Category.VALUE),
        ('"a\\u00a0b"', '"a b"', Category.CALL),  # blanks of Unicode part words too
        ('"a b"', '"a"', Category.VALUE),
        ('""', '" "', Category.VALUE),
        ('{"a": 1, "a": 2}', '{"a": 2}', Category.CALL),
        ("{}", "[]", Category.TYPE),
        ("{}", "", Category.DECODE),
        ("{}", "[" * 100_000, Category.DECODE),
        ("{}", "9" * 5_000, Category.DECODE),
        ('{"a": 1, "b": [1]}', '{"b": [], "a": 2}', Category.VALUE),  # the expected order decides which difference is told
    ],
)
def test_pairs(wanted, given_, category):
    assert Comparator(0.1, 1e-6).compare(Call("f", wanted), Call("f", given_)) is category


def test_an_expectation_that_is_not_json_is_an_error_mark_and_no_crash():
    broken = {"type": "function_call", "name": "f", "arguments": "{"}
    verdict = verify(broken, function_call("f", "{}"))
    assert (verdict.reward, verdict.fields["category"]) == (0.0, None)
    assert "arguments of the expected call of 'f'" in verdict.fields["error"]
    assert verify(broken, function_call("g", "{}")).fields["category"] == Category.UNEXPECTED_TOOL
    with pytest.raises(ExpectationError):
        score_calls([Call("f", "{")], [Call("f", "{}")] * 2, ComparatorConfig(word_count_similarity_threshold=0.1))


@pytest.mark.parametrize(
    "expected",
    [None, {}, {"type": "function_call_batch", "calls": []}, {"type": "other"}, {"type": "function_call", "name": "f"}],
)
def test_rows_without_a_usable_expectation_are_refused(expected):
    with pytest.raises(DataError, match="expected_action"):
        verify(expected, "text")


@given(st.lists(st.lists(st.integers(0, 4), max_size=5, unique=True).map(sorted), max_size=5))
def test_pairing_is_a_maximum_matching(candidates):
    found = paired(candidates)
    assert all(a in candidates[e] for e, a in found.items())
    assert len(set(found.values())) == len(found)
    assert len(found) == largest(candidates)


def largest(candidates: list[list[int]]) -> int:
    """The size of a maximum matching by trying everything."""
    choices = [[*c, None] for c in candidates]
    used = ([a for a in pick if a is not None] for pick in itertools.product(*choices))
    return max(len(pick) for pick in used if len(set(pick)) == len(pick))


def test_pairing_needs_no_stack():
    """The last expected call must push all others one place further."""
    n = 20_000
    chain = [[i, i + 1] for i in range(n)]
    assert len(paired([*chain, [0, 0]])) == n + 1


def test_greed_would_fail_where_texts_are_similar():
    expected = batch(call("f", q="red green"), call("f", q="red blue"))
    output = [function_call("f", '{"q": "blue red green"}'), function_call("f", '{"q": "green red"}')]
    verdict = verify(expected, *output, word_count_similarity_threshold=0.4)
    assert (verdict.reward, verdict.fields["category"]) == (1.0, Category.BATCH)


@pytest.mark.parametrize(
    ("made", "config", "reward", "category"),
    [
        ("ab", {}, 0.0, Category.BATCH_LENGTH),
        ("ax", {}, 0.0, Category.VALUE),
        ("abcd", {}, 1.0, Category.BATCH),
        ("abcd", {"parallel_tool_call_rewarding": True}, 0.0, Category.BATCH_LENGTH),
        ("ab", {"parallel_tool_call_rewarding": True, "allow_superset": True}, 0.0, Category.BATCH_LENGTH),
        ("abx", {"parallel_tool_call_rewarding": True, "parallel_tool_call_reward_mode": "fractional"}, 2 / 3, Category.VALUE),
        ("abx", {"parallel_tool_call_rewarding": True}, 0.0, Category.VALUE),
        (
            "ab",
            {"parallel_tool_call_rewarding": True, "allow_subset": True, "parallel_tool_call_reward_mode": "f1"},
            0.8,
            Category.BATCH_LENGTH,
        ),
        (
            "ax",
            {"parallel_tool_call_rewarding": True, "allow_subset": True, "parallel_tool_call_reward_mode": "fractional"},
            0.5,
            Category.VALUE,
        ),
    ],
)
def test_batches(made, config, reward, category):
    expected = batch(*(call("f", q=q) for q in "abc"))
    verdict = verify(expected, *(function_call("f", json.dumps({"q": q})) for q in made), **config)
    assert (verdict.reward, verdict.fields["category"]) == (pytest.approx(reward), category)


@given(st.lists(st.sampled_from("abcde"), min_size=2, max_size=6), st.lists(st.sampled_from("abcde"), min_size=2, max_size=6))
def test_the_order_of_calls_never_changes_the_reward(expected, made):
    for mode in ("f1", "fractional", "binary_strict"):
        config = ComparatorConfig(
            word_count_similarity_threshold=0.1,
            parallel_tool_call_rewarding=True,
            allow_subset=True,
            allow_superset=True,
            parallel_tool_call_reward_mode=mode,
        )
        wanted, calls = ([Call("f", json.dumps(q)) for q in texts] for texts in (expected, made))
        shuffled = random.Random(len(made)).sample(calls, len(calls))
        rewards = {score_calls(wanted, order, config).reward for order in (calls, shuffled)}
        assert len(rewards) == 1
        assert 0.0 <= rewards.pop() <= 1.0


def test_a_megabyte_is_scored_in_bounded_time():
    words = " ".join(f"w{i}" for i in range(150_000))
    many = [function_call("f", json.dumps({"q": f"a b {i}"})) for i in range(20_000)]
    start = time.thread_time()
    assert verify(call("f", q=words), function_call("f", json.dumps({"q": words}))).reward == 1.0
    assert verify(batch(*(call("f", q=f"c d x{i}") for i in range(20))), *many).reward == 0.0
    assert verify(call("f", q="x"), *[function_call("f", '{"q": "y"}')] * 20_000).reward == 0.0
    assert verify(call("f", q=[]), function_call("f", '{"q": ' + "[" * 500_000)).reward == 0.0
    assert verify({"type": "message", "content": ""}, "x" * 1_000_000).reward == 1.0
    assert time.thread_time() - start < 5


def test_every_variant_is_there_with_its_threshold():
    registry = Registry.load()
    name = "single_step_tool_use_with_argument_comparison"
    found = {
        v: registry.binding(v, None).environment.config.tool_call_comparator_config.word_count_similarity_threshold
        for v in registry.entry_of(name).manifest.variants
    }
    prefixes = {"": 0.1, "toolcall_schema_": 0.1, "swe_pivot_": 0.0, "search_pivot_": 0.3, "droid_pivot_": 0.0}
    assert found == {**{p + name: t for p, t in prefixes.items()}, f"parallel_tool_calls_{name}": 0.1}
