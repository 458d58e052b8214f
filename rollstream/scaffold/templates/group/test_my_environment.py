"""Rewards by rank, and that the order of the members does not matter."""

from __future__ import annotations

import itertools
import time

import pytest

from environments.hostile import MEGABYTES
from environments.registry import Registry
from environments.testing import EnvironmentHarness, response

ROW = {"responses_create_params": {"input": "?"}, "keywords": ["ice"]}
BINDING = Registry.load().binding("my_environment", None)
REWARDS = {"Ice": 1.0, "ice flows": 0.5, "ice floes": 0.5, "ice that flows": 1 / 3, "snow": 0.0, "": 0.0}


@pytest.fixture
def harness() -> EnvironmentHarness:
    made = EnvironmentHarness(BINDING)
    made.seed(ROW)
    return made


def test_shorter_replies_rank_higher_in_any_order(harness: EnvironmentHarness) -> None:
    for order in itertools.permutations(REWARDS):
        verdicts = harness.verify_group([response(text) for text in order])
        assert [v.reward for v in verdicts] == [REWARDS[text] for text in order]


def test_a_group_of_one_is_its_best(harness: EnvironmentHarness) -> None:
    assert [v.reward for v in harness.verify_group([response("ice, a lot of it")])] == [1.0]


def test_megabytes_take_no_longer_than_a_second(harness: EnvironmentHarness) -> None:
    started = time.monotonic()
    harness.verify_group([response(text) for text in MEGABYTES.values()])
    assert time.monotonic() - started < 1.0
