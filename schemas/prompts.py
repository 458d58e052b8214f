"""What a record of `prompts` means, in each of its three forms.

A record is a bare NeMo Gym row, the JSON event (an object with a `row`), or the Avro event. Invariant: `read_prompt` is
a pure function of the bytes and their place, so admission, the ledger and a replay all see the same task.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from pydantic import TypeAdapter, ValidationError

from schemas import codec, jsontext
from schemas.errors import DataError
from schemas.events import Prompt
from schemas.identity import DEFAULT_RUN, Place, RolloutRef, is_id, task_id_at, task_index_at
from schemas.rows import ATTEMPT_INDEX, PARAMS, ROLLOUT_ID, ROLLOUT_INDEX, TASK_INDEX, check_row, describe, parse_row
from schemas.topics import MAX_PROMPT_BYTES

MAX_REPEATS = 100_000
"""One record may not ask for more rollouts than this: admission writes them in one transaction per batch."""

_PROMPT = TypeAdapter(Prompt)
_FIELDS = frozenset(f.name for f in dataclasses.fields(Prompt))


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """A prompt with its identity settled and its row parsed. `row_json` is the row's JSON text."""

    prompt: Prompt
    row: dict[str, Any]
    row_json: bytes
    place: Place

    @property
    def task_id(self) -> str:
        return self.prompt.task_id or task_id_at(self.place)

    @property
    def task_index(self) -> int:
        if self.prompt.task_index is not None:
            return self.prompt.task_index
        own = self.row.get(TASK_INDEX)
        return own if own is not None else task_index_at(self.place)

    def rollouts(self) -> list[RolloutRef]:
        """The rollouts this prompt asks for, in order of their index."""
        p = self.prompt
        explicit = self.row.get(ROLLOUT_ID) or ""
        size = p.group_size or p.repeats
        return [
            RolloutRef(p.run_id, self.task_id, self.task_index, i, p.attempt, size, _explicit(explicit, i, size))
            for i in range(p.first_rollout, p.first_rollout + p.repeats)
        ]


def read_prompt(data: bytes | None, place: Place) -> Task:
    """The task in a record of `prompts`.

    Raises `DataError` when the record is empty, larger than `MAX_PROMPT_BYTES`, neither Avro nor JSON, or not a valid row.
    """
    if not data:
        raise DataError("the record is empty")
    if len(data) > MAX_PROMPT_BYTES:
        raise DataError(f"the row has {len(data):,} bytes; the limit is {MAX_PROMPT_BYTES:,}")
    if codec.is_avro(data):
        return _from_event(_checked(codec.decode(data, Prompt)), place)
    try:
        value = jsontext.loads(data)
    except ValueError as e:
        raise DataError(f"not JSON: {e}") from e
    if isinstance(value, dict) and PARAMS not in value and "row" in value:
        return _from_json_event(value, place)
    return _from_bare_row(check_row(value), data, place)


def _from_bare_row(row: dict[str, Any], data: bytes, place: Place) -> Task:
    index = row.get(TASK_INDEX)
    prompt = Prompt(
        row=b"",
        run_id=DEFAULT_RUN,
        task_id=None if index is None else f"task-{index}",
        first_rollout=_small_int(row, ROLLOUT_INDEX),
        attempt=_small_int(row, ATTEMPT_INDEX),
    )
    return Task(prompt, row, data, place)


def _from_json_event(value: dict[str, Any], place: Place) -> Task:
    unknown = sorted(value.keys() - _FIELDS)
    if unknown:
        raise DataError(f"unknown key {', '.join(unknown)} in the prompt event; it may have {', '.join(sorted(_FIELDS))}")
    row = check_row(value["row"])
    try:
        prompt = _PROMPT.validate_python({**value, "row": b""})
    except ValidationError as e:
        raise DataError(describe(e, "prompt")) from e
    return Task(_checked(prompt), row, jsontext.dumps(row), place)


def _from_event(prompt: Prompt, place: Place) -> Task:
    return Task(dataclasses.replace(prompt, row=b""), parse_row(prompt.row), prompt.row, place)


def _checked(prompt: Prompt) -> Prompt:
    if not 1 <= prompt.repeats <= MAX_REPEATS:
        raise DataError(f"repeats must be between 1 and {MAX_REPEATS:,}, found {prompt.repeats}")
    if not is_id(prompt.run_id):
        raise DataError(f"run_id {prompt.run_id!r}: a letter or digit, then letters, digits, '.', '_' or '-'")
    if prompt.first_rollout < 0 or prompt.attempt < 0 or (prompt.task_index or 0) < 0:
        raise DataError("first_rollout, attempt and task_index must be ≥ 0")
    if prompt.timeout_s is not None and not prompt.timeout_s > 0:
        raise DataError(f"timeout_s must be greater than 0, found {prompt.timeout_s}")
    return prompt


def _small_int(row: dict[str, Any], key: str) -> int:
    value = row.get(key, 0)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise DataError(f"{key} must be an integer ≥ 0, found {value!r}")
    return value


def _explicit(explicit: str, index: int, size: int) -> str:
    """An explicit id names one rollout; a row that is repeated keeps its repeats apart by their index."""
    return explicit if not explicit or size == 1 else f"{explicit}-{index}"
