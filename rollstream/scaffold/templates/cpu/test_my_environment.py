"""Similarity by words, and the time that a megabyte takes."""

from __future__ import annotations

import time

import pytest

from environments.hostile import MEGABYTES
from environments.registry import Registry
from environments.testing import EnvironmentHarness, response

ROW = {"responses_create_params": {"input": "?"}, "reference": "April June September November"}
BINDING = Registry.load().binding("my_environment", None)


@pytest.fixture
def harness() -> EnvironmentHarness:
    made = EnvironmentHarness(BINDING)
    made.seed(ROW)
    return made


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("April June September November", 1.0),
        ("April\n  June September\tNovember ", 1.0),
        ("April June", 2 / 3),
        ("June April", 1 / 3),
        ("May", 0.0),
        ("", 0.0),
    ],
)
def test_words_in_common_count(harness: EnvironmentHarness, text: str, reward: float) -> None:
    assert harness.verify(response(text)).reward == pytest.approx(reward)


@pytest.mark.parametrize("text", MEGABYTES.values(), ids=MEGABYTES.keys())
def test_a_megabyte_takes_no_longer_than_a_second(harness: EnvironmentHarness, text: str) -> None:
    started = time.monotonic()
    harness.verify(response(text))
    assert time.monotonic() - started < 1.0


def test_a_long_reference_takes_no_longer_than_two_seconds(harness: EnvironmentHarness) -> None:
    harness.seed({**ROW, "reference": "a b a a b " * 400})
    started = time.monotonic()
    harness.verify(response("b a b b a " * 400))
    assert time.monotonic() - started < 2.0
