"""xlam_fc: what the page says and the cases do not show, properties of matching, and time on hostile answers."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.agents.playing import play
from environments.registry import Registry
from environments.testing import EnvironmentHarness, function_call, response
from environments.verdict import Verdict
from environments.xlam_fc.environment import XlamFc
from environments.xlam_fc.matching import Call, count_matches
from schemas import jsontext
from schemas.errors import VerifierError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
CALLS = st.lists(st.tuples(st.sampled_from("fg"), st.dictionaries(st.sampled_from("abc"), JSON, max_size=2)), max_size=5)


def verify(calls: list[tuple[str, Any]], expected: Any) -> Verdict:
    harness = EnvironmentHarness(XlamFc())
    harness.seed({"responses_create_params": {"input": "?"}, "expected_answers": expected})
    return harness.verify(response(*(function_call(name, arguments) for name, arguments in calls)))


def answers(calls: list[tuple[str, Any]]) -> list[dict[str, Any]]:
    return [{"name": name, "arguments": arguments} for name, arguments in calls]


def texts(calls: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    return [(name, json.dumps(arguments)) for name, arguments in calls]


@given(CALLS)
def test_the_expected_calls_themselves_are_right_and_one_more_is_wrong(calls):
    assert verify(texts(calls), answers(calls)).reward == 1.0
    assert verify([*texts(calls), ("f", "{}")], answers(calls)).reward == 0.0


@given(CALLS, st.integers())
def test_the_order_of_calls_without_options_is_irrelevant(calls, seed):
    exact = [(name, {"only": arguments}) for name, arguments in calls]
    shuffled = random.Random(seed).sample(exact, len(exact))
    assert verify(texts(shuffled), answers(exact)).reward == 1.0


@given(CALLS, CALLS)
def test_there_are_never_more_matches_than_calls_on_either_side(expected, predicted):
    found = count_matches([Call(*c) for c in expected], [Call(*c) for c in predicted])
    assert 0 <= found <= min(len(expected), len(predicted))


@given(st.text() | JSON.map(json.dumps), JSON)
def test_whatever_a_model_writes_is_scored_and_can_be_written(text, wanted):
    verdict = verify([("f", text)], [{"name": "f", "arguments": {"a": wanted}}])
    jsontext.dumps(verdict.fields)


def test_an_expected_text_without_an_object_fails_only_when_the_name_fits():
    assert verify([("g", "{}")], [{"name": "f", "arguments": "[1]"}]).reward == 0.0
    with pytest.raises(VerifierError, match="no object"):
        verify([("f", "{}")], [{"name": "f", "arguments": "[1]"}])
    assert verify([("f", "{}")], [{"name": "f", "arguments": "not JSON"}]).reward == 1.0
    assert verify([("f", "{}")], [{"name": "f", "arguments": 3}]).reward == 1.0


def test_calls_that_are_nested_too_deep_count_as_without_arguments():
    deep = '{"a":' + "[" * 500 + "]" * 500 + "}"
    deeper = "[" * 100_000
    verdict = verify([("f", deep), ("f", deeper), ("f", "1" * 5_000)], [])
    assert [call["arguments"] for call in verdict.fields["predicted_calls"]] == [{}, {}, {}]


def test_a_megabyte_of_calls_is_scored_in_bounded_time():
    many = [("f", json.dumps({"a": i})) for i in range(20_000)]
    expected = [{"name": "f", "arguments": {"a": -i}} for i in range(20)]
    start = time.thread_time()
    assert verify(many, expected).fields["num_correct"] == 1  # of -0
    assert verify([("f", '{"a":"' + "x" * 1_000_000 + '"}')], expected).reward == 0.0
    assert time.thread_time() - start < 5


def test_the_agent_executes_nothing_and_asks_once():
    binding = Registry.load().binding("xlam_fc", None)
    harness = EnvironmentHarness(binding)
    harness.seed({"responses_create_params": {"input": "?"}, "expected_answers": [{"name": "f", "arguments": {"a": 1}}]})
    final = play(binding.agent, harness, response(function_call("f", '{"a": 1}')))
    assert harness.verify(final).reward == 1.0
