"""Which calls count, and the time that a thousand of them take."""

from __future__ import annotations

import json
import time

import pytest

from environments.registry import Registry
from environments.testing import EnvironmentHarness, function_call, response

HALL: dict[str, object] = {"name": "set_light", "arguments": {"room": "hall", "on": True}}
BATH: dict[str, object] = {"name": "set_light", "arguments": {"room": "bath", "on": False}}
ROW = {"responses_create_params": {"input": "?"}, "expected_calls": [HALL, BATH]}
BINDING = Registry.load().binding("my_environment", None)


@pytest.fixture
def harness() -> EnvironmentHarness:
    made = EnvironmentHarness(BINDING)
    made.seed(ROW)
    return made


def calls(*expected: dict[str, object]) -> dict[str, object]:
    return response(*(function_call(str(c["name"]), json.dumps(c["arguments"])) for c in expected))


@pytest.mark.parametrize(
    ("made", "reward", "missing", "wrong"),
    [
        ((HALL, BATH), 1.0, 0, 0),
        ((BATH, HALL), 1.0, 0, 0),
        ((HALL,), 0.0, 1, 0),
        ((HALL, HALL), 0.0, 1, 1),
        ((HALL, BATH, HALL), 0.0, 0, 1),
        ((), 0.0, 2, 0),
    ],
)
def test_exactly_the_expected_calls(
    harness: EnvironmentHarness, made: tuple[dict[str, object], ...], reward: float, missing: int, wrong: int
) -> None:
    verdict = harness.verify(calls(*made))
    assert (verdict.reward, verdict.fields) == (reward, {"missing_calls": missing, "wrong_calls": wrong})


@pytest.mark.parametrize("arguments", ["", "{", "[" * 100_000, "null", '{"room": "hall"}'])
def test_arguments_that_are_no_json_are_wrong(harness: EnvironmentHarness, arguments: str) -> None:
    assert harness.verify(response(function_call("set_light", arguments))).fields["wrong_calls"] == 1


def test_many_calls_take_no_longer_than_a_second(harness: EnvironmentHarness) -> None:
    started = time.monotonic()
    assert harness.verify(calls(*[HALL] * 10_000)).reward == 0.0
    assert time.monotonic() - started < 1.0
