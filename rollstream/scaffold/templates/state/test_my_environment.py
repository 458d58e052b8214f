"""What the tools do to the list, what they refuse, and that only the list counts."""

from __future__ import annotations

import json

import pytest

from environments.agents.playing import play
from environments.registry import Registry
from environments.testing import EnvironmentHarness, function_call, response

ROW = {"responses_create_params": {"input": "?"}, "start": {"milk": 1}, "wanted": {"bread": 2}}
BINDING = Registry.load().binding("my_environment", None)


@pytest.fixture
def harness() -> EnvironmentHarness:
    made = EnvironmentHarness(BINDING)
    made.seed(ROW)
    return made


def call(harness: EnvironmentHarness, name: str, **arguments: object) -> str:
    return harness.call(name, json.dumps(arguments)).output


def test_the_tools_change_the_list(harness: EnvironmentHarness) -> None:
    assert call(harness, "read") == '{"milk":1}'
    assert call(harness, "add", item="milk", count=2) == "milk: 3"
    assert call(harness, "remove", item="milk") == "Struck off."
    assert call(harness, "remove", item="milk") == "milk is not on the list."
    assert call(harness, "read") == "{}"


@pytest.mark.parametrize("arguments", [{"item": "", "count": 1}, {"item": "x", "count": 0}, {"item": "x" * 101, "count": 1}])
def test_what_does_not_fit_changes_nothing(harness: EnvironmentHarness, arguments: dict[str, object]) -> None:
    assert harness.call("add", json.dumps(arguments)).status == 422
    assert call(harness, "read") == '{"milk":1}'


def test_the_list_cannot_grow_without_end(harness: EnvironmentHarness) -> None:
    state = harness.state
    state.entries = {str(i): 1 for i in range(1_000)}
    harness.state_json = state.model_dump_json()
    assert call(harness, "add", item="one more", count=1) == "The list is full."
    assert call(harness, "add", item="7", count=1) == "7: 2"


def test_a_whole_rollout(harness: EnvironmentHarness) -> None:
    calls = [function_call("remove", '{"item":"milk"}'), function_call("add", '{"item":"bread","count":2}', call_id="call_2")]
    final = play(BINDING.agent, harness, response(*calls), "Done.")
    assert harness.verify(final).reward == 1.0


def test_only_the_list_counts(harness: EnvironmentHarness) -> None:
    assert harness.verify(response("I have put bread on the list.")).reward == 0.0
