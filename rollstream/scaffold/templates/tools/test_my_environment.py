"""The tool, a whole rollout, scores, and the time that a megabyte takes."""

from __future__ import annotations

import json
import time

import pytest

from environments.agents.playing import play
from environments.hostile import MEGABYTES
from environments.registry import Registry
from environments.testing import EnvironmentHarness, function_call, response

ROW = {"responses_create_params": {"input": "?"}, "kilometres": {"Oslo-Hamar": 126}, "expected_answer": 252}
BINDING = Registry.load().binding("my_environment", None)


@pytest.fixture
def harness() -> EnvironmentHarness:
    made = EnvironmentHarness(BINDING)
    made.seed(ROW)
    return made


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ({"start": "Oslo", "end": "Hamar"}, '{"kilometres":126}'),
        ({"start": "Hamar", "end": "Oslo"}, '{"kilometres":126}'),
        ({"start": "Oslo", "end": "Rome"}, "There is no road from Oslo to Rome."),
    ],
)
def test_the_tool_knows_the_roads_of_the_row(harness: EnvironmentHarness, arguments: dict[str, str], output: str) -> None:
    assert harness.call("distance", json.dumps(arguments)).output == output


def test_wrong_arguments_become_text(harness: EnvironmentHarness) -> None:
    assert harness.call("distance", '{"start": "Oslo"}').status == 422


def test_a_whole_rollout(harness: EnvironmentHarness) -> None:
    call = function_call("distance", '{"start": "Oslo", "end": "Hamar"}')
    final = play(BINDING.agent, harness, response(call), "There and back: 252 km.")
    assert harness.verify(final).reward == 1.0


@pytest.mark.parametrize(("text", "reward"), [("252", 1.0), ("126 and 126", 0.0), ("", 0.0), ("9" * 10_000, 0.0)])
def test_the_last_number_counts(harness: EnvironmentHarness, text: str, reward: float) -> None:
    assert harness.verify(response(text)).reward == reward


@pytest.mark.parametrize("text", MEGABYTES.values(), ids=MEGABYTES.keys())
def test_a_megabyte_takes_no_longer_than_a_second(harness: EnvironmentHarness, text: str) -> None:
    started = time.monotonic()
    harness.verify(response(text))
    assert time.monotonic() - started < 1.0
