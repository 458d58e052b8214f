from __future__ import annotations

import json

import pytest

from environments.verdict import Verdict
from schemas.errors import VerifierError
from schemas.identity import RolloutRef
from services.verifier_worker.line import result_line

REF = RolloutRef("r", "t", 7, 1)
ROW = {"responses_create_params": {"input": "é"}, "expected_answer": "B"}


def line(verdict, ref=REF, **fields):
    data = result_line(ref, "an_agent", {**ROW, **fields}, b'{"id":"x"}', verdict)
    assert b"\n" not in data
    assert "é".encode() in data
    return json.loads(data)


def test_the_fields_of_a_line():
    assert line(Verdict(1, extracted_answer="B")) == {
        **ROW,
        "response": {"id": "x"},
        "extracted_answer": "B",
        "reward": 1.0,
        "_ng_task_index": 7,
        "_ng_rollout_index": 1,
        "agent_ref": {"type": "responses_api_agents", "name": "an_agent"},
    }


def test_identity_and_reward_win_over_whatever_calls_itself_so():
    made = line(
        Verdict(0.5, _ng_task_index=1, agent_ref="x", response="y", responses_create_params="z"),
        reward=9,
        response="old",
        _ng_task_index=3,
        _ng_rollout_index=4,
        _ng_attempt_index=2,
        _ng_rollout_id="theirs",
        agent_ref={"name": "own", "type": "t", "more": 1},
    )
    assert (made["reward"], made["response"], made["responses_create_params"]) == (0.5, {"id": "x"}, {"input": "é"})
    assert (made["_ng_task_index"], made["_ng_rollout_index"]) == (7, 1)
    assert made["agent_ref"] == {"name": "own", "type": "t", "more": 1}
    assert "_ng_attempt_index" not in made
    assert "_ng_rollout_id" not in made


def test_attempts_and_explicit_ids_are_told_when_there_are_any():
    made = line(Verdict(0), RolloutRef("r", "t", 7, 1, 2, 1, "mine"))
    assert (made["_ng_attempt_index"], made["_ng_rollout_id"]) == (2, "mine")


def test_a_verifiers_field_wins_over_the_rows():
    assert line(Verdict(0, expected_answer="C"))["expected_answer"] == "C"


def test_components_are_also_fields_and_masks_are_told():
    made = line(Verdict(1.5, components={"format": 0.5, "answer": 1}, mask_sample=True))
    assert made["reward_components"] == {"format": 0.5, "answer": 1}
    assert (made["format"], made["answer"], made["mask_sample"]) == (0.5, 1, True)


def test_what_is_not_finite_becomes_null_with_its_path():
    made = line(Verdict(1, a=float("inf"), b=[1, {"c": float("nan")}], d=2))
    assert (made["a"], made["b"], made["d"]) == (None, [1, {"c": None}], 2)
    assert made["_ng_notes"] == ["a was not a finite number and is null here", "b.1.c was not a finite number and is null here"]


def test_a_reward_changed_behind_the_verdicts_back_is_no_line():
    verdict = Verdict(1)
    verdict.reward = float("nan")
    with pytest.raises(VerifierError, match="finite"):
        line(verdict)
