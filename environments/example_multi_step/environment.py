"""Look up a number for every synonym of a term with one tool, submit the numbers in order with another.

Owns the reading of the last submission. Invariant: a submission that cannot be read scores 0.0 with a note, it never
fails the rollout: the policy wrote it, so the policy is to blame.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import FailFast, TypeAdapter, ValidationError

from environments.environment import Context, Environment, Response, Reverify, Task, Verdict
from environments.tools import tool

_INTEGERS = TypeAdapter(Annotated[list[int], FailFast()])
_SUBMIT = "extract_synonym_values"


class MultiStepTask(Task):
    """The numbers to submit and the trap: the number of the term itself."""

    id: int
    expected_synonym_values: list[int]
    expected_synonyms: list[str]
    minefield_label: str
    minefield_label_value: int


class ExampleMultiStep(Environment):
    """Rewards the exact list of numbers, in order, with 1.0."""

    Task = MultiStepTask
    reverify = Reverify.STATELESS

    @tool
    def get_synonym_value(self, synonym: str) -> dict[str, int]:
        """Get the number of a synonym."""
        return {"synonym_value": sum(map(ord, synonym))}

    @tool
    def extract_synonym_values(self, synonym_values: list[int]) -> dict[str, bool]:
        """Submit the numbers of the synonyms, in the order of the list of synonyms."""
        return {"success": True}

    def verify(self, task: MultiStepTask, response: Response, state: Any, context: Context) -> Verdict:
        try:
            return _score(task, _last_submission(response))
        except _UnreadableError as e:
            return Verdict(0.0, **_fields([], accuracy=False, overlap=0.0, hit=False), error=str(e))


class _UnreadableError(Exception):
    """The submission, or what was expected of it, cannot be compared; the reference answers such a rollout with HTTP 500."""


def _score(task: MultiStepTask, actual: Sequence[Any]) -> Verdict:
    expected = task.expected_synonym_values
    if not expected:
        raise _UnreadableError("expected_synonym_values is empty")
    parsed = _as_integers(actual)
    accuracy = list(actual) == expected
    # Membership in the list, not a set of it: integers that all hash alike would make a set of the model's numbers quadratic.
    overlap = sum(e in actual for e in set(expected)) / len(expected)
    hit = task.minefield_label in actual or task.minefield_label_value in actual
    return Verdict(1.0 if accuracy else 0.0, **_fields(parsed, accuracy=accuracy, overlap=overlap, hit=hit))


def _fields(parsed: list[int], *, accuracy: bool, overlap: float, hit: bool) -> dict[str, Any]:
    return {
        "parsed_synonym_values": parsed,
        "accuracy": accuracy,
        "set_overlap": overlap,
        "original_term_minefield_hit": hit,
        "order_instruction_following_failure": not accuracy and overlap == 1.0,
    }


def _last_submission(response: Response) -> Sequence[Any]:
    """`synonym_values` of the last submitting call; empty when there is none. Raises `_UnreadableError`."""
    calls = [c for c in response.function_calls() if c.get("name") == _SUBMIT]
    if not calls:
        return []
    try:
        values = json.loads(calls[-1]["arguments"])["synonym_values"]
    except (ValueError, TypeError, KeyError, RecursionError) as e:
        raise _UnreadableError(f"the arguments of {_SUBMIT} cannot be read: {type(e).__name__}") from e
    if not isinstance(values, list):
        raise _UnreadableError(f"synonym_values must be a list, found {type(values).__name__}")
    return values


def _as_integers(values: Sequence[Any]) -> list[int]:
    try:
        return _INTEGERS.validate_python(values)
    except ValidationError as e:
        raise _UnreadableError(f"synonym_values must hold integers only: {e.errors()[0]['msg']}") from e
