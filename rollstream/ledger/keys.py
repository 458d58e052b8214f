"""Short names for rollouts, and what a scored record says about itself.

A rollout's key is the 64-bit hash of its run and id; the id contains the attempt (platform.md A8).
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

from schemas import codec, headers, jsontext
from schemas.errors import DataError
from schemas.events import Scored
from schemas.identity import DEFAULT_RUN
from schemas.rows import AGENT_REF, ATTEMPT_INDEX, ROLLOUT_ID, ROLLOUT_INDEX, TASK_INDEX


class Keys(NamedTuple):
    """The key of one attempt, that of attempt 0 of the same rollout, and the attempt's number."""

    key: int
    base: int
    attempt: int


class Identity(NamedTuple):
    """Whose score a record is."""

    run: str
    rollout_id: str
    attempt: int
    environment: str


def key_of(run: str, name: str) -> int:
    """64 bits of BLAKE2b over the run and the name."""
    return int.from_bytes(blake2b(f"{run}\n{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest())


def keys_of(run: str, rollout_id: str, attempt: int) -> Keys:
    """Keys of the attempt that is called `rollout_id`."""
    key = key_of(run, rollout_id)
    return Keys(key, key_of(run, rollout_id.removesuffix(f"-a{attempt}")) if attempt else key, attempt)


def scored_identity(value: bytes, found: Mapping[str, bytes]) -> Identity:
    """Identity of a scored record: from its headers, or from its value when it has none of ours.

    Raises `DataError` when the value has to be looked at and cannot be read.
    """
    if headers.RUN in found and headers.ROLLOUT in found:
        attempt = int(found.get(headers.ATTEMPT, b"") or _attempt(found[headers.ROLLOUT]))
        environment = found.get(headers.ENVIRONMENT, b"").decode("utf-8", "replace")
        return Identity(found[headers.RUN].decode(), found[headers.ROLLOUT].decode(), attempt, environment)
    if codec.is_avro(value):
        scored = codec.decode(value, Scored)
        return Identity(scored.ref.run_id, scored.ref.rollout_id, scored.ref.attempt, scored.environment)
    return _from_line(value, found.get(headers.RUN, DEFAULT_RUN.encode()).decode())


def _from_line(value: bytes, run: str) -> Identity:
    try:
        line = jsontext.loads(value)
        attempt = int(line.get(ATTEMPT_INDEX) or 0)
        base = line.get(ROLLOUT_ID) or f"{line[TASK_INDEX]}-{line[ROLLOUT_INDEX]}"
        agent = (line.get(AGENT_REF) or {}).get("name") or ""
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise DataError(f"not a rollout line: {e!r}") from e
    return Identity(run, f"{base}-a{attempt}" if attempt else str(base), attempt, str(agent))


def _attempt(rollout_id: bytes) -> int:
    """Attempt in the id of a rollout that was numbered, `TASK-ROLLOUT-aN`; an explicit id means what its author says."""
    task, _, rest = rollout_id.partition(b"-")
    rollout, _, attempt = rest.partition(b"-a")
    return int(attempt) if task.isdigit() and rollout.isdigit() and attempt.isdigit() else 0
