"""An environment's per-rollout state, from the event and back."""

from __future__ import annotations

from pydantic import BaseModel

from environments.environment import Environment
from schemas.errors import DataError


def read_state(environment: Environment, data: bytes) -> BaseModel | None:
    """The environment's state in an event; raises `DataError` when it is not of this environment's version."""
    if environment.State is None:
        return None
    try:
        return environment.State.model_validate_json(data) if data else environment.State()
    except ValueError as e:
        raise DataError(f"state of {type(environment).__name__} cannot be read: {e}") from e


def write_state(state: BaseModel | None) -> bytes:
    """The state as it travels; empty when there is none."""
    return b"" if state is None else state.model_dump_json().encode()
