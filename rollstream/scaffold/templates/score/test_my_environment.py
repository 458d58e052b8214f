"""Rows, scores and the time that a megabyte takes."""

from __future__ import annotations

import time

import pytest

from environments.hostile import MEGABYTES
from environments.registry import Registry
from environments.testing import EnvironmentHarness, response
from schemas.errors import DataError

ROW = {"responses_create_params": {"input": "Which river?"}, "expected_answer": "Danube"}
BINDING = Registry.load().binding("my_environment", None)


@pytest.fixture
def harness() -> EnvironmentHarness:
    made = EnvironmentHarness(BINDING)
    made.seed(ROW)
    return made


@pytest.mark.parametrize(
    ("text", "answer", "reward"),
    [
        ("Answer: Danube", "Danube", 1.0),
        ("Answer: Rhine\nNo.\nAnswer:  DANUBE. ", "DANUBE.", 1.0),
        ("Answer: Danube\nAnswer: Rhine", "Rhine", 0.0),
        ("Danube", None, 0.0),
        ("Answer:\nDanube", None, 0.0),
        ("", None, 0.0),
    ],
)
def test_the_last_answer_counts(harness: EnvironmentHarness, text: str, answer: str | None, reward: float) -> None:
    verdict = harness.verify(response(text))
    assert (verdict.reward, verdict.fields["extracted_answer"]) == (reward, answer)


def test_a_row_without_an_answer_is_refused(harness: EnvironmentHarness) -> None:
    with pytest.raises(DataError, match="expected_answer"):
        harness.seed({"responses_create_params": ROW["responses_create_params"]})


@pytest.mark.parametrize("text", MEGABYTES.values(), ids=MEGABYTES.keys())
def test_a_megabyte_takes_no_longer_than_a_second(harness: EnvironmentHarness, text: str) -> None:
    started = time.monotonic()
    harness.verify(response(text + "Answer: Danube"))
    assert time.monotonic() - started < 1.0
