"""An environment's per-rollout state, from the event and back."""

from __future__ import annotations

from pydantic import BaseModel

from environments.environment import Environment
from schemas import jsontext
from schemas.errors import DataError


def read_state(environment: Environment, data: bytes) -> BaseModel | None:
    """The environment's state in an event; raises `DataError` when it is not of this environment's version."""
    if environment.State is None:
        return None
    try:
        return _read(environment.State, data) if data else environment.State()
    except ValueError as e:
        raise DataError(f"state of {type(environment).__name__} cannot be read: {e}") from e


def write_state(state: BaseModel | None) -> bytes:
    """The state as it travels; empty when there is none."""
    if state is None:
        return b""
    try:
        return state.model_dump_json().encode()
    except ValueError:  # a lone surrogate in a model's words, which pydantic's JSON does not know
        return jsontext.dumps(state.model_dump(mode="json"))


def _read(cls: type[BaseModel], data: bytes) -> BaseModel:
    try:
        return cls.model_validate_json(data)
    except ValueError:
        if b"\\u" not in data:
            raise
        return cls.model_validate(jsontext.loads_lenient(data))
