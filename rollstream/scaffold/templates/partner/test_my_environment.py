"""What the partner answers, and what a guess is worth."""

from __future__ import annotations

import pytest

from environments.agents.playing import play
from environments.registry import Registry
from environments.testing import EnvironmentHarness, response
from schemas.errors import DataError

ROW = {"responses_create_params": {"input": "Guess."}, "highest": 10, "number": 3}
BINDING = Registry.load().binding("my_environment", None)


@pytest.fixture
def harness() -> EnvironmentHarness:
    made = EnvironmentHarness(BINDING)
    made.seed(ROW)
    return made


@pytest.mark.parametrize(
    ("guess", "answer"),
    [
        ("1", "higher"),
        ("9", "lower"),
        ("three", "no number"),
        ("", "no number"),
        ("٣", "no number"),
        ("9" * 5_000, "no number"),
    ],
)
def test_the_partner_answers(harness: EnvironmentHarness, guess: str, answer: str) -> None:
    move = harness.respond(response(guess))
    assert not move.done
    assert answer in move.items[0]["content"]


@pytest.mark.parametrize(
    ("guesses", "reward"), [(["3"], 1.0), (["9", "3"], 0.5), (["?", "1", "9", " 3 "], 0.25), (["1"] * 12, 0.0)]
)
def test_a_whole_rollout(harness: EnvironmentHarness, guesses: list[str], reward: float) -> None:
    assert harness.verify(play(BINDING.agent, harness, *guesses)).reward == reward


def test_a_row_without_a_number_is_refused(harness: EnvironmentHarness) -> None:
    with pytest.raises(DataError, match="number"):
        harness.seed({**ROW, "number": 0})
