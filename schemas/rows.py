"""Dataset rows (platform.md A1, A2): what may stand in one and what is refused.

Owns the strict reading of `responses_create_params`. Invariant: a row that passes `parse_row` can be sent to a model
without looking at it again; one that does not raises a `DataError` that names the field.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, StrictBool, StrictFloat, StrictInt, StrictStr, TypeAdapter, ValidationError

from schemas import jsontext
from schemas.errors import DataError
from schemas.identity import MAX_ID_LENGTH, is_id, is_index

PARAMS = "responses_create_params"
AGENT_REF = "agent_ref"
TASK_INDEX = "_ng_task_index"
ROLLOUT_INDEX = "_ng_rollout_index"
ATTEMPT_INDEX = "_ng_attempt_index"
ROLLOUT_ID = "_ng_rollout_id"

Number = StrictInt | StrictFloat


class CreateParams(BaseModel):
    """The keys of platform.md A2, each with its outer type; unknown keys are an error, which catches `max_tokens`."""

    model_config = ConfigDict(extra="forbid")

    background: StrictBool | None = None
    include: list[StrictStr] | None = None
    input: StrictStr | list[dict[str, Any]]
    instructions: StrictStr | None = None
    max_output_tokens: StrictInt | None = None
    max_tool_calls: StrictInt | None = None
    metadata: dict[str, Any] | None = None
    model: StrictStr | None = None
    parallel_tool_calls: StrictBool | None = None
    previous_response_id: StrictStr | None = None
    prompt: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    service_tier: StrictStr | None = None
    store: StrictBool | None = None
    temperature: Number | None = None
    text: dict[str, Any] | None = None
    tool_choice: StrictStr | dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    top_logprobs: StrictInt | None = None
    top_p: Number | None = None
    truncation: StrictStr | None = None
    user: StrictStr | None = None
    stream: Literal[False] | None = None


_SHOWN = 100  # characters of an offending value in a message

_PARAMS = TypeAdapter(CreateParams)
_WORDS = {"extra_forbidden": "unknown key", "missing": "missing"}


def parse_row(data: bytes | str) -> dict[str, Any]:
    """The row in `data`, checked.

    Raises `DataError` when it is not strict JSON (NaN and lone surrogates included), not an object, or not a valid row.
    """
    try:
        row = jsontext.loads(data)
    except ValueError as e:
        raise DataError(f"not JSON: {e}") from e
    return check_row(row)


def check_row(row: object) -> dict[str, Any]:
    """`row` itself when it is a valid row; raises `DataError` naming the field otherwise."""
    if not isinstance(row, dict):
        raise DataError(f"expected a JSON object, found {_kind(row)}")
    if PARAMS not in row:
        raise DataError(f"the row has no {PARAMS}")
    try:
        _PARAMS.validate_python(row[PARAMS])
    except ValidationError as e:
        raise DataError(describe(e, PARAMS)) from e
    _check_identity(row)
    if jsontext.too_deep(row):
        raise DataError(f"the row is nested deeper than {jsontext.MAX_DEPTH} levels")
    return row


def agent_name(row: dict[str, Any]) -> str | None:
    """Name in the row's `agent_ref`, if it has one; raises `DataError` for an `agent_ref` of another shape."""
    ref = row.get(AGENT_REF)
    if ref is None:
        return None
    if not isinstance(ref, dict) or not isinstance(ref.get("name"), str):
        raise DataError(f"{AGENT_REF} must be an object with a name, found {_kind(ref)}")
    return str(ref["name"])


def shown(value: object) -> str:
    """`value` for a message: cut, since what was refused may be as long as a record."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def describe(error: ValidationError, where: str) -> str:
    """A pydantic error as one line: the field, what was wrong, for at most three fields."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    lines = [f"{'.'.join((where, *(str(p)[:_SHOWN] for p in e['loc'])))}: {_WORDS.get(e['type'], e['msg'])}" for e in found[:3]]
    more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""  # noqa: PLR2004 - three lines are read, thirty are not
    return "; ".join(lines) + more


def _check_identity(row: dict[str, Any]) -> None:
    index = row.get(TASK_INDEX)
    if index is not None and not is_index(index):
        raise DataError(f"{TASK_INDEX} must be an integer from 0 to 2**53, found {shown(index)}")
    explicit = row.get(ROLLOUT_ID)
    if explicit is not None and (not isinstance(explicit, str) or not is_id(explicit)):
        raise DataError(
            f"{ROLLOUT_ID} {shown(explicit)}: a letter or digit, then letters, digits, '.', '_', '-'; at most {MAX_ID_LENGTH}"
        )
    agent_name(row)


def _kind(value: object) -> str:
    names = {type(None): "null", bool: "a boolean", str: "a string", list: "a list", int: "a number", float: "a number"}
    return names.get(type(value), type(value).__name__)
