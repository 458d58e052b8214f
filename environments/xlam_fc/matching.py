"""Which predicted calls are expected ones.

Owns reading and comparing calls. Invariant: a call that a model wrote never raises; whatever cannot be decoded counts as a
call without arguments. Only an expectation that is no object is an error, because its row cannot be scored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from environments.common.arguments import decoded
from environments.response import Response
from schemas.errors import VerifierError


@dataclass(frozen=True, slots=True)
class Call:
    """A call with its arguments as they were given: decoded once when the model wrote them, and text if still text then."""

    name: Any
    arguments: Any

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Call:
        """An expected call."""
        return cls(answer.get("name"), answer.get("arguments"))


def predicted_calls(response: Response) -> list[Call]:
    """Every call of the trajectory, in order."""
    return [Call(item.get("name"), _object(item.get("arguments"))) for item in response.function_calls()]


def count_matches(expected: Sequence[Call], predicted: Sequence[Call]) -> int:
    """How many expected calls find a predicted one of their own.

    Greedy, as in the reference: each takes the first unused call that matches. Raises `VerifierError` as `_wanted` does.
    """
    unused = list(predicted)
    for call in expected:
        place = next((i for i, other in enumerate(unused) if _matches(call, other)), None)
        if place is not None:
            del unused[place]
    return len(predicted) - len(unused)


def _matches(expected: Call, predicted: Call) -> bool:
    """Equal names, and every expected argument is there with an equal value; Python's equality, so 3 is 3.0 and true is 1."""
    if expected.name != predicted.name:
        return False
    wanted, given = _wanted(expected.arguments), _given(predicted.arguments)
    return all(key in given and given[key] == value for key, value in wanted.items())


def _wanted(arguments: Any) -> Mapping[str, Any]:
    """The expected arguments; raises `VerifierError` for a text that holds something else than an object."""
    if isinstance(arguments, str):
        arguments = _object(arguments)
        if not isinstance(arguments, Mapping):
            raise VerifierError("an expected call's `arguments` is the JSON text of no object", retryable=False)
    return arguments if isinstance(arguments, Mapping) else {}


def _given(arguments: Any) -> Mapping[str, Any]:
    value = _object(arguments) if isinstance(arguments, str) else arguments
    return value if isinstance(value, Mapping) else {}


def _object(text: Any) -> Any:
    """The value in a JSON text, the empty object when there is none."""
    try:
        return decoded(text)
    except ValueError:
        return {}
