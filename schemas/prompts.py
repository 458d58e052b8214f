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
from schemas.identity import (
    DEFAULT_RUN,
    MAX_ID_LENGTH,
    Place,
    RolloutRef,
    is_id,
    is_index,
    task_id_at,
    task_index_at,
    task_index_of,
)
from schemas.quick import quick
from schemas.rows import ATTEMPT_INDEX, PARAMS, ROLLOUT_ID, ROLLOUT_INDEX, TASK_INDEX, check_row, describe, parse_row, shown
from schemas.topics import INLINE_LIMIT, MAX_PROMPT_BYTES

MAX_REPEATS = 100_000
"""One record may not ask for more rollouts than this: admission writes them in one transaction per batch."""

MAX_TIMEOUT_S = 30 * 86_400.0
"""No rollout may run longer than its records are kept."""

MAX_FAN_OUT_BYTES = 256 << 20
"""What one prompt's rollouts may come to as events: they are written in one transaction, from one worker's memory."""

_PROMPT = TypeAdapter(Prompt)
_FIELDS = frozenset(f.name for f in dataclasses.fields(Prompt))


@quick
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
        if own is not None:
            return int(own)
        return task_index_of(self.prompt.task_id) if self.prompt.task_id else task_index_at(self.place)

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
    task = _read(data, place)
    written = task.prompt.repeats * min(len(task.row_json), INLINE_LIMIT)
    if written > MAX_FAN_OUT_BYTES:
        raise DataError(
            f"{task.prompt.repeats:,} repeats of a row of {len(task.row_json):,} bytes would be {written:,} bytes of events; "
            f"one prompt may cause {MAX_FAN_OUT_BYTES:,}: ask for them in several prompts, each with its own first_rollout"
        )
    return task


def _read(data: bytes, place: Place) -> Task:
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
        raise DataError(
            f"unknown key {shown(', '.join(unknown))} in the prompt event; it may have {', '.join(sorted(_FIELDS))}"
        )
    row = check_row(value["row"])
    try:
        prompt = _PROMPT.validate_python({**value, "row": b""})
    except ValidationError as e:
        raise DataError(describe(e, "prompt")) from e
    return Task(_checked(prompt), row, jsontext.dumps(row), place)


def _from_event(prompt: Prompt, place: Place) -> Task:
    return Task(prompt, parse_row(prompt.row), prompt.row, place)


def _checked(prompt: Prompt) -> Prompt:
    if not 1 <= prompt.repeats <= MAX_REPEATS:
        raise DataError(f"repeats must be between 1 and {MAX_REPEATS:,}, found {prompt.repeats}")
    if prompt.group_size is not None and not prompt.repeats <= prompt.group_size <= MAX_REPEATS:
        raise DataError(f"group_size must be between repeats ({prompt.repeats}) and {MAX_REPEATS:,}, found {prompt.group_size}")
    if not is_id(prompt.run_id):
        raise DataError(f"run_id {shown(prompt.run_id)}: a letter or digit, then letters, digits, '.', '_' or '-'")
    if len(prompt.task_id or "") > MAX_ID_LENGTH:
        raise DataError(f"task_id has {len(prompt.task_id or ''):,} characters; the limit is {MAX_ID_LENGTH}")
    if not all(map(is_index, (prompt.first_rollout, prompt.attempt, prompt.task_index or 0))):
        raise DataError("first_rollout, attempt and task_index must be integers from 0 to 2**53")
    if prompt.timeout_s is not None and not 0 < prompt.timeout_s <= MAX_TIMEOUT_S:
        raise DataError(f"timeout_s must be greater than 0 and at most {MAX_TIMEOUT_S:,.0f}, found {prompt.timeout_s}")
    return prompt


def _small_int(row: dict[str, Any], key: str) -> int:
    value = row.get(key, 0)
    if not is_index(value):
        raise DataError(f"{key} must be an integer from 0 to 2**53, found {shown(value)}")
    return int(value)


def _explicit(explicit: str, index: int, size: int) -> str:
    """An explicit id names one rollout; a row that is repeated keeps its repeats apart by their index."""
    return explicit if not explicit or size == 1 else f"{explicit}-{index}"
