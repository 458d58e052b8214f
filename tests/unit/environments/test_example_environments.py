"""The three example environments: their own rows, the odd cases of their pages, and time bounds on hostile answers."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.registry import Registry
from environments.testing import EnvironmentHarness, function_call, response
from schemas import jsontext
from schemas.errors import DataError, ToolError
from schemas.rows import agent_name, parse_row

REGISTRY = Registry.load()
NAMES = ["mcqa", "example_single_tool_call", "example_multi_step", "example_session_state_mgmt"]
PARAMS = {"responses_create_params": {"input": "?"}}
STEPS = {**PARAMS, "id": 1, "expected_synonyms": ["a", "b"], "expected_synonym_values": [711, 407], "minefield_label": "Hot"}
STEPS["minefield_label_value"] = 299


def harness(name: str) -> EnvironmentHarness:
    return EnvironmentHarness(REGISTRY.binding(name, None))


def rows(name: str) -> list[dict[str, Any]]:
    folder = REGISTRY.entry_of(name).folder
    return [parse_row(line) for line in (folder / "data" / "example.jsonl").read_bytes().splitlines()]


@pytest.mark.parametrize("name", NAMES)
def test_own_rows_are_valid_and_named_for_the_agent(name: str) -> None:
    found = rows(name)
    assert len(found) >= 5
    for row in found:
        harness(name).seed(row)
        binding = REGISTRY.binding(None, agent_name(row))
        assert binding.name == name
        assert binding.agent_name == f"{name}_simple_agent"


@pytest.mark.parametrize("name", NAMES[1:])
def test_own_rows_offer_the_tools_as_the_environment_derives_them(name: str) -> None:
    tools = [t.schema() for t in REGISTRY.binding(name, None).environment.tools.values()]
    for row in rows(name):
        assert row["responses_create_params"]["tools"] == tools


@pytest.mark.parametrize("name", NAMES)
def test_readme_names_every_tool_and_the_differences(name: str) -> None:
    entry = REGISTRY.entry_of(name)
    text = (Path(entry.folder) / "README.md").read_text("utf-8")
    assert "ifferences from the reference" in text
    assert all(f"{t}(" in text for t in REGISTRY.binding(name, None).environment.tools)


def test_multi_step_rows_can_be_solved_with_the_tools() -> None:
    for row in rows("example_multi_step"):
        h = harness("example_multi_step")
        h.seed(row)
        values = [json.loads(h.call("get_synonym_value", json.dumps({"synonym": s})).output) for s in row["expected_synonyms"]]
        submission = json.dumps({"synonym_values": [v["synonym_value"] for v in values]})
        assert h.call("extract_synonym_values", submission).output == '{"success":true}'
        verdict = h.verify(response(function_call("extract_synonym_values", submission)))
        assert verdict.reward == 1.0
        assert verdict.fields["original_term_minefield_hit"] is False


def test_counter_rows_can_be_solved_with_the_tools() -> None:
    for row in rows("example_session_state_mgmt"):
        h = harness("example_session_state_mgmt")
        h.seed(row)
        h.call("increment_counter", json.dumps({"count": row["expected_count"] - row["initial_count"]}))
        assert json.loads(h.call("get_counter_value").output) == {"count": row["expected_count"]}
        assert h.verify(response("done")).reward == 1.0


def test_counter_unseeded_starts_at_zero_and_scores_zero() -> None:
    h = harness("example_session_state_mgmt")
    h.take({**PARAMS, "initial_count": 5, "expected_count": 3})
    h.state_json = "{}"
    assert h.verify(response()).reward == 0.0
    assert h.call("get_counter_value").output == '{"count":0}'
    h.call("increment_counter", '{"count":3}')
    assert h.verify(response()).reward == 1.0


@pytest.mark.parametrize(("row", "field"), [({"expected_count": 1}, "initial_count"), ({"initial_count": 1}, "expected_count")])
def test_counter_row_without_a_count_is_refused_by_name(row: dict[str, int], field: str) -> None:
    with pytest.raises(DataError, match=f"row.{field}: missing"):
        harness("example_session_state_mgmt").seed({**PARAMS, **row})


@given(st.lists(st.integers(-(10**30), 10**30) | st.sampled_from(["2.5", '"0x15"', "null", "[1]"]), max_size=12))
def test_counter_is_the_sum_of_what_was_accepted(counts: list[int | str]) -> None:
    h = harness("example_session_state_mgmt")
    h.seed({**PARAMS, "initial_count": 7, "expected_count": 0})
    for count in counts:
        reply = h.call("increment_counter", f'{{"count":{count}}}')
        assert reply.status == (200 if isinstance(count, int) else 422)
    total = 7 + sum(c for c in counts if isinstance(c, int))
    assert json.loads(h.call("get_counter_value").output) == {"count": total}


def test_counter_too_long_to_travel_ends_the_rollout() -> None:
    h = harness("example_session_state_mgmt")
    h.seed({**PARAMS, "initial_count": 0, "expected_count": 0})
    h.call("increment_counter", f'{{"count":{10**3999}}}')
    with pytest.raises(ToolError, match="4,000 digits"):
        h.call("increment_counter", f'{{"count":{10**4000}}}')
    assert h.verify(response()).reward == 0.0


def steps_verdict(arguments: str, **row: Any) -> dict[str, Any]:
    h = harness("example_multi_step")
    h.seed({**STEPS, **row})
    verdict = h.verify(response(function_call("extract_synonym_values", arguments)))
    return {"reward": verdict.reward, **verdict.fields}


@pytest.mark.parametrize(
    ("arguments", "note"),
    [
        ("{", "cannot be read: JSONDecodeError"),
        ("[711,407]", "cannot be read: TypeError"),
        ("null", "cannot be read: TypeError"),
        ('{"values":[1]}', "cannot be read: KeyError"),
        ('{"synonym_values":null}', "must be a list, found NoneType"),
        ('{"synonym_values":"711"}', "must be a list, found str"),
        ('{"synonym_values":{"711":1}}', "must be a list, found dict"),
        ('{"synonym_values":["Hot"]}', "integers only"),
        ('{"synonym_values":[711.5]}', "integers only"),
        ('{"synonym_values":[NaN]}', "integers only"),
        ('{"synonym_values":[[711],407]}', "integers only"),
        ('{"synonym_values":' + "[" * 200_000 + "]" * 200_000 + "}", "RecursionError"),
    ],
)
def test_a_submission_that_fails_the_reference_scores_zero_with_a_note(arguments: str, note: str) -> None:
    result = steps_verdict(arguments)
    assert result["reward"] == 0.0
    assert note in result["error"]
    assert result["parsed_synonym_values"] == []


def test_an_empty_expectation_scores_zero_with_a_note() -> None:
    result = steps_verdict('{"synonym_values":[]}', expected_synonym_values=[])
    assert (result["reward"], result["error"]) == (0.0, "expected_synonym_values is empty")


@pytest.mark.parametrize("arguments", [None, 5, ["x"], {"synonym_values": [711, 407]}])
def test_arguments_that_are_no_text_score_zero_with_a_note(arguments: object) -> None:
    item = {"type": "function_call", "name": "extract_synonym_values", "arguments": arguments}
    h = harness("example_multi_step")
    h.seed(STEPS)
    verdict = h.verify(response(item))
    assert verdict.reward == 0.0
    assert "cannot be read" in verdict.fields["error"]


NUMBERS = st.lists(st.sampled_from([711, 407, 299, 1, 711.0, True, 0, False, "711"]), max_size=6)


@given(actual=NUMBERS, expected=st.lists(st.sampled_from([711, 407, 1, 0, 5]), min_size=1, max_size=5))
def test_steps_agree_with_a_plain_formulation(actual: list[Any], expected: list[int]) -> None:
    result = steps_verdict(json.dumps({"synonym_values": actual}), expected_synonym_values=expected)
    overlap = len(set(actual) & set(expected)) / len(expected)
    assert result["reward"] == float(actual == expected)
    assert result["accuracy"] is (actual == expected)
    assert result["set_overlap"] == overlap
    assert result["original_term_minefield_hit"] is (299 in actual)
    assert result["order_instruction_following_failure"] is (actual != expected and overlap == 1.0)
    assert result["parsed_synonym_values"] == [int(v) for v in actual]


@given(st.text())
def test_steps_never_fail_on_any_text(arguments: str) -> None:
    assert steps_verdict(arguments)["reward"] == 0.0


HASH_MODULUS = 2**61 - 1
"""Multiples of it all hash to 0 in CPython: a set of them is quadratic."""


@pytest.mark.parametrize(
    "arguments",
    [
        json.dumps({"synonym_values": [HASH_MODULUS * i for i in range(1, 45_000)]}),
        json.dumps({"synonym_values": ["x"] * 250_000}),
        json.dumps({"synonym_values": [1] * 330_000}),
        '{"synonym_values":[' + ",".join(["9" * 4_000] * 250) + "]}",
        "[" * 1_000_000,
        '"' + "\\ud800" * 160_000,
    ],
    ids=["colliding-hashes", "wrong-elements", "many", "huge-integers", "nesting", "surrogates"],
)
def test_steps_take_well_under_a_second_on_a_megabyte(arguments: str) -> None:
    h = harness("example_multi_step")
    h.seed(STEPS)
    body = response(function_call("extract_synonym_values", arguments))
    started = time.process_time()
    h.verify(body)
    assert time.process_time() - started < 0.8


def test_weather_echoes_the_city_as_compact_json() -> None:
    h = harness("example_single_tool_call")
    h.seed(PARAMS)
    reply = h.call("get_weather", json.dumps({"city": 'São "Paulo" 東京'})).output
    assert (
        reply
        == jsontext.dumps(
            {"city": 'São "Paulo" 東京', "weather_description": 'The weather in São "Paulo" 東京 is cold.'}
        ).decode()
    )
