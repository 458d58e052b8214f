"""abstention: reading answers and grades, thinking in common, and time on hostile answers."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.abstention.environment import Abstention, AbstentionConfig
from environments.abstention.reading import abstains, answer_of, grade
from environments.common.thinking import without_thinking
from environments.context import Context
from environments.response import Response
from environments.testing import EnvironmentHarness, ScriptedModel, response
from environments.verdict import Verdict
from schemas.errors import JudgeError

TAGGED = st.lists(st.sampled_from(["<think>", "</think>", "<thinking>", "</thinking>", "a", " ", "\n", "é"]), max_size=14).map(
    "".join
)


def verify(text: str, *judge: Any, **config: Any) -> Verdict:
    model = ScriptedModel(*judge)
    harness = EnvironmentHarness(Abstention(AbstentionConfig(**config)), context=Context(models={"genrm": model}))
    harness.seed({"responses_create_params": {"input": "?"}, "question": "Which river?", "answer": "Danube"})
    verdict = harness.verify(response(text))
    assert len(model.requests) == len(judge)
    return verdict


@given(TAGGED)
def test_thinking_is_left_out_as_regular_expressions_would(text):
    wanted = text
    for tag in ("think", "thinking"):
        wanted = re.sub(rf"<{tag}>.*?</{tag}>", "", wanted, flags=re.DOTALL)
    for tag in ("think", "thinking"):
        wanted = re.sub(rf"\A.*?</{tag}>", "", wanted, flags=re.DOTALL)
    assert without_thinking(text) == wanted.strip()


@given(st.text())
def test_whatever_is_said_has_an_answer_and_a_grade(text):
    assert isinstance(answer_of(Response(response(text))), str)
    assert grade(text) in {"correct", "incorrect", "abstain"}


@given(st.sampled_from("ABC"), st.text(alphabet="abc xyz\n,.", max_size=30))
def test_a_letter_alone_on_the_last_line_is_the_grade(letter, before):
    assert grade(f"A B C {before}\n {letter} ") == {"A": "correct", "B": "incorrect", "C": "abstain"}[letter]


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        ("[IDK]", True),
        ("the idk!", True),
        ("an I.D.K", True),
        ("_IDK_", False),
        ("id k", False),
        ("", False),
        ("[IDK] maybe", False),
    ],
)
def test_abstaining(answer, wanted):
    assert abstains(answer, "[IDK]") is wanted


def test_rewards_follow_the_configuration():
    rewards = {"correct_reward": 2.0, "abstention_reward": 0.25, "incorrect_reward": -1.0}
    assert [verify(r"\boxed{Rhine}", letter, **rewards).reward for letter in "ABC"] == [2.0, -1.0, 0.25]
    assert verify(r"\boxed{[IDK]}", **rewards).reward == 0.25


def test_the_prompt_has_question_target_and_answer_and_can_be_replaced():
    model = ScriptedModel("A")
    config = AbstentionConfig(judge_prompt_template="{question}|{target}|{predicted_answer}")
    harness = EnvironmentHarness(Abstention(config), context=Context(models={"genrm": model}))
    harness.seed({"responses_create_params": {"input": "?"}, "question": "Q {target}?", "answer": "T"})
    harness.verify(response(r"\boxed{P}"))
    assert model.requests[0]["input"][0]["content"] == "Q {target}?|T|P"


@pytest.mark.parametrize("said", ["", "  ", "<think>A</think>"])
def test_a_judge_that_says_nothing_has_not_judged(said):
    with pytest.raises(JudgeError, match="empty judge response"):
        verify("Danube", said)


def test_a_megabyte_is_read_in_bounded_time():
    start = time.thread_time()
    for text in ("<think>" * 150_000, "</think>" * 125_000, "\\boxed{" * 140_000, "{" * 1_000_000, "the " * 250_000):
        assert verify(text, "B").reward == 0.0
    assert grade("A\n" * 500_000) == "correct"
    assert time.thread_time() - start < 10
