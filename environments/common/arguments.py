"""The arguments of function calls, decoded as the reference's scorers decode them: by Python's JSON parser.

Unlike strict JSON it takes NaN and infinities. Invariant: whatever a model wrote, the outcome is a value that a result line
can carry (no deeper than `jsontext.MAX_DEPTH`) or a `ValueError`.
"""

from __future__ import annotations

import json
from typing import Any

from schemas import jsontext


def decoded(text: Any) -> Any:
    """The value in a JSON text; of a key given twice the last counts.

    Raises `ValueError` for anything else: no text, no JSON, nested too deep, a number of more than 4,300 digits.
    """
    if not isinstance(text, str):
        raise ValueError(f"{type(text).__name__} instead of a JSON text")  # noqa: TRY004 - one error for whatever cannot be decoded
    try:
        value = json.loads(text)
    except RecursionError as e:
        raise ValueError("nested too deep") from e
    if jsontext.too_deep(value):
        raise ValueError("nested too deep")
    return value
