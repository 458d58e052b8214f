"""One scored rollout as a reader sees it, whatever form it travelled in.

A record of `scored-rollouts` is the JSONL line (platform.md A7), or the Avro event around it; a line too large for a record
lies in the claim store, under the name in the record's header `rs-claim` or the one that follows from the event's
payload. Invariant: `line` is byte for byte what the sink writes.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from schemas import codec, headers, jsontext
from schemas.errors import DataError
from schemas.events import Claim, Scored
from schemas.identity import DEFAULT_RUN, Place
from schemas.rows import AGENT_REF, ATTEMPT_INDEX, ROLLOUT_ID, ROLLOUT_INDEX, TASK_INDEX
from services.runtime.claims import ClaimStore, claim_name
from services.runtime.record import ConsumerRecord

Resolver = Callable[[str], Awaitable[bytes]]
"""Fetches a claim by its name. Raises `InfrastructureError` when it cannot."""

LINE = "line"
"""Position of the line among a rollout's claims."""


@dataclass(frozen=True, slots=True)
class ScoredRollout:
    """A scored rollout: who it is, its reward, and the whole line.

    `timestamp_ms` is when it was scored (epoch milliseconds), `place` where it lies in the log. `environment` is the
    variant that scored it, or the agent's name when the record came from elsewhere.
    """

    run_id: str
    rollout_id: str
    environment: str
    task_index: int
    rollout_index: int
    attempt: int
    reward: float
    place: Place
    timestamp_ms: int
    line: bytes
    _parsed: list[dict[str, Any]] = field(default_factory=list, repr=False, compare=False)

    @property
    def data(self) -> dict[str, Any]:
        """The line as an object; parsed once, when first asked for."""
        if not self._parsed:
            self._parsed.append(_object(self.line))
        return self._parsed[0]

    @property
    def response(self) -> dict[str, Any]:
        """The Responses object of the rollout (platform.md A5)."""
        found = self.data.get("response")
        return found if isinstance(found, dict) else {}


async def read_scored(record: ConsumerRecord, resolve: Resolver) -> ScoredRollout:
    """The scored rollout in a record.

    Raises `DataError` when it is not one, `InfrastructureError` when its line cannot be fetched.
    """
    value = record.value or b""
    claim_header = headers.value(record.headers, headers.CLAIM)
    if claim_header is not None:
        value = await resolve((claim_header or value).decode("utf-8", "replace"))
    if codec.is_avro(value):
        event = codec.decode(value, Scored)
        claim = Claim(event.line.size, event.line.crc)
        line = await resolve(claim_name(event.ref, LINE, claim)) if claim.size else event.line.data
        return _of_event(record, event, line)
    return _of_line(record, value)


def claim_resolver(url: str) -> Resolver:
    """Fetches from the claim store at `url`, opened in the event loop of the first use."""
    stores: list[ClaimStore] = []

    async def resolve(name: str) -> bytes:
        if not stores:
            stores.append(ClaimStore(url))
        _, _, numbers = name.rpartition("/")
        try:
            _, size, crc = numbers.rsplit("-", 2)
            claim = Claim(int(size), int(crc, 16))
        except ValueError as e:
            raise DataError(f"{name!r} is not the name of a claim") from e
        return await stores[0].get(name, claim)

    return resolve


def _of_event(record: ConsumerRecord, event: Scored, line: bytes) -> ScoredRollout:
    ref = event.ref
    return ScoredRollout(
        run_id=ref.run_id,
        rollout_id=ref.rollout_id,
        environment=event.environment,
        task_index=ref.task_index,
        rollout_index=ref.rollout_index,
        attempt=ref.attempt,
        reward=event.reward,
        place=Place(record.topic, record.partition, record.offset),
        timestamp_ms=record.timestamp,
        line=line,
    )


def _of_line(record: ConsumerRecord, line: bytes) -> ScoredRollout:
    data = _object(line)
    reward = data.get("reward")
    if isinstance(reward, bool) or not isinstance(reward, int | float) or not math.isfinite(reward):
        raise DataError(f"reward must be a finite number, found {reward!r}")
    found = {k: v.decode("utf-8", "replace") for k, v in record.headers}
    task, rollout, attempt = _index(data, TASK_INDEX), _index(data, ROLLOUT_INDEX), _index(data, ATTEMPT_INDEX, 0)
    base = str(data.get(ROLLOUT_ID) or f"{task}-{rollout}")
    agent = data.get(AGENT_REF)
    return ScoredRollout(
        run_id=found.get(headers.RUN, DEFAULT_RUN),
        rollout_id=found.get(headers.ROLLOUT) or (f"{base}-a{attempt}" if attempt else base),
        environment=found.get(headers.ENVIRONMENT) or (str(agent.get("name", "")) if isinstance(agent, dict) else ""),
        task_index=task,
        rollout_index=rollout,
        attempt=int(found.get(headers.ATTEMPT) or attempt),
        reward=float(reward),
        place=Place(record.topic, record.partition, record.offset),
        timestamp_ms=record.timestamp,
        line=line,
        _parsed=[data],
    )


def _object(line: bytes) -> dict[str, Any]:
    try:
        value = jsontext.loads_lenient(line)
    except (ValueError, RecursionError) as e:
        raise DataError(f"the line is not JSON: {e}") from e
    if not isinstance(value, dict):
        raise DataError("the line is not a JSON object")
    return value


def _index(data: dict[str, Any], key: str, default: int | None = None) -> int:
    value = data.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise DataError(f"{key} must be an integer, found {value!r}")
    return value
