"""`task`, `response`, `variant`, `config`, `expected`, `preferred`, `tolerance`: one rollout and its score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from environments.testing import EnvironmentHarness
from schemas.errors import DataError, JudgeError, RolloutError
from tests.conformance.better import BETTER
from tests.conformance.cases import Case
from tests.conformance.comparing import differences
from tests.conformance.forms.form import Form, Outcome

INVALID = frozenset({"invalid_row", "invalid_request", "HTTP 422", "seed_session HTTP 422", "session_not_seeded"})
CRASHED = frozenset({"verifier_exception", "HTTP 500"})
_BETTER_FAILURES = {"task data error, row not scored": DataError}
"""Failures that `preferred` asks for, by its words."""

_KINDS = ("error", "http_status", "status", "_ng_failure_class", "failure_class")


class Scoring(Form):
    """Compares the outcome with `expected`: fields of a scored row, a refused row, a crash of the reference, a failed judge."""

    keys = frozenset(
        {"id", "note", "environment", "source", "task", "response", "variant", "config", "expected", "preferred", "tolerance"}
    )

    def __init__(self, others: frozenset[str] = frozenset()) -> None:
        self._others = others  # keys of `expected` that other forms compare

    def check(self, case: Case, harness: EnvironmentHarness, outcome: Outcome) -> list[str]:
        expected = {k: v for k, v in case.expected.items() if k not in self._others}
        kind = next((expected[k] for k in _KINDS if k in expected and not _is_field(k, expected)), None)
        if kind is None:
            return _scored(case, expected, outcome)
        if kind in INVALID or kind == 422:
            return _failed(outcome, DataError)
        if kind == "judge_failed":
            return _failed(outcome, JudgeError)
        if kind in CRASHED or kind == 500:
            better = case.data.get("preferred", BETTER.get(case.subject))
            if better and "failure" in better:
                return _failed(outcome, _BETTER_FAILURES[better["failure"]])
            return _scored(case, better, outcome) if better else _failed(outcome, RolloutError)
        return [f"the suite does not know the outcome {kind!r}"]


def _is_field(key: str, expected: Mapping[str, Any]) -> bool:
    """`error` and `status` are also names of result fields: beside a reward they are meant as such."""
    return key in ("error", "status") and "reward" in expected


def _scored(case: Case, expected: Mapping[str, Any], outcome: Outcome) -> list[str]:
    if outcome.error is not None:
        return [f"expected a score, found {outcome.error!r}"]
    return differences(expected, outcome.fields, case.data.get("tolerance"))


def _failed(outcome: Outcome, cls: type[RolloutError]) -> list[str]:
    if isinstance(outcome.error, cls):
        return []
    return [f"expected a {cls.__name__}, found {outcome.error or dict(outcome.fields)!r}"]
