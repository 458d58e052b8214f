"""The agent's calls, and what its last draft is worth."""

from __future__ import annotations

import pytest

from environments.agents.playing import Play
from environments.hostile import MEGABYTES
from environments.registry import Registry
from environments.testing import EnvironmentHarness, ScriptedModel, response

ROW = {"responses_create_params": {"input": "Name two letters."}, "required": ["alpha", "beta"]}
BINDING = Registry.load().binding("my_environment", None)


@pytest.fixture
def harness() -> EnvironmentHarness:
    made = EnvironmentHarness(BINDING)
    made.seed(ROW)
    return made


def test_a_draft_is_criticised_and_revised(harness: EnvironmentHarness) -> None:
    played = Play(BINDING.agent, harness, {"policy": ScriptedModel("Alpha.", "One is missing.", "Alpha and beta.")})
    final = played.run()
    assert harness.verify(final).reward == 1.0
    assert played.result == {"rounds": 1}
    assert len(final["output"]) == 1
    assert "Alpha." in played.requests[1]["input"][-1]["content"]
    assert all(said in played.requests[2]["input"][-1]["content"] for said in ("Alpha.", "One is missing."))


@pytest.mark.parametrize(("text", "reward"), [("BETA alpha", 1.0), ("beta", 0.5), ("", 0.0)])
def test_the_share_of_the_words_counts(harness: EnvironmentHarness, text: str, reward: float) -> None:
    assert harness.verify(response(text)).reward == reward


def test_drafts_of_a_megabyte_do_not_grow_the_memory(harness: EnvironmentHarness) -> None:
    text = next(iter(MEGABYTES.values()))
    played = Play(BINDING.agent, harness, {"policy": ScriptedModel(text, text, text)})
    played.run()
    assert len(played.requests[2]["input"][-1]["content"]) < 50_000
