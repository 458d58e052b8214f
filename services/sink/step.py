"""Records of `scored-rollouts` and `failures` to lines of the results and failures files.

Owns reading at the end of the pipeline. Invariant: every record of the run becomes exactly one line, whatever is in it,
and the same record always becomes the same line (the directory's files rest on that).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from schemas import codec, headers, jsontext
from schemas.errors import DataError, Outcome, RolloutError
from schemas.events import Failure, Payload, Scored
from schemas.identity import DEFAULT_RUN, Place, RolloutRef
from schemas.rows import ATTEMPT_INDEX, ROLLOUT_INDEX, TASK_INDEX
from services.runtime.record import ConsumerRecord, Outgoing, Outputs
from services.sink.lines import Parts, failure_line, unreadable_line

RESULTS = "results"
FAILURES = "failures"
OFFSET = "rs-offset"
"""Header of a line: offset of the record it was made of."""

REWARD = "rs-reward"
"""Header of a results line: its reward, so that whoever watches need not parse the line."""

_SCORED = Outcome.SCORED.encode()

Resolve = Callable[[str], Awaitable[bytes]]
"""Bytes of a claim by its name. Raises a `RolloutError` when it cannot be had."""


class PayloadReader(Protocol):
    """Bytes of an event's payload that travels by reference. Raises a `RolloutError` when they cannot be had."""

    def __call__(self, ref: RolloutRef | None, part: str, payload: Payload) -> Awaitable[bytes]: ...


@dataclass(frozen=True, slots=True)
class SinkStep:
    """The sink's step. `run_id` None takes the records of every run.

    An output's `topic` is `RESULTS` or `FAILURES`, its value the line without line end, its key the rollout
    (`RolloutRef.key`, empty when it is not known); headers carry run, attempt, outcome and offset. `scored_topic` is the
    full name of the topic that holds results; whatever comes from another topic is a failure.
    """

    scored_topic: str
    resolve: Resolve
    read_payload: PayloadReader
    run_id: str | None = None

    def __call__(self, record: ConsumerRecord) -> Outputs | Awaitable[Outputs]:
        run = headers.value(record.headers, headers.RUN)
        if self.run_id is not None and run is not None and run != self.run_id.encode():
            return ()
        try:
            made = self._scored(record) if record.topic == self.scored_topic else self._failure(record)
        except Exception as e:  # noqa: BLE001 - a record that cannot be read costs a line, never the worker
            return self.recover(record, e)
        return self._kept(made) if isinstance(made, Outgoing) else self._awaited(record, made)

    def recover(self, record: ConsumerRecord, error: Exception) -> Outputs:
        """The line of a record whose step raised or ran over its deadline."""
        return self._kept(unreadable(record, error))

    async def _awaited(self, record: ConsumerRecord, made: Awaitable[Outgoing]) -> Outputs:
        try:
            return self._kept(await made)
        except Exception as e:  # noqa: BLE001 - as above
            return self.recover(record, e)

    def _kept(self, out: Outgoing) -> Outputs:
        """Records without a run header show their run only now."""
        run = headers.value(out.headers, headers.RUN)
        return (out,) if self.run_id is None or run == self.run_id.encode() else ()

    def _scored(self, record: ConsumerRecord) -> Outgoing | Awaitable[Outgoing]:
        value = _present(record.value)
        if headers.value(record.headers, headers.CLAIM) is not None:
            return self._claimed(record, value)
        return self._scored_bytes(record, value)

    async def _claimed(self, record: ConsumerRecord, name: bytes) -> Outgoing:
        made = self._scored_bytes(record, await self.resolve(name.decode()))
        return made if isinstance(made, Outgoing) else await made

    def _scored_bytes(self, record: ConsumerRecord, value: bytes) -> Outgoing | Awaitable[Outgoing]:
        if not codec.is_avro(value):
            return told(record, value) or result(record, value, _run_of(record))
        event = codec.decode(value, Scored)
        return self._by_reference(record, event) if event.line.size else result(record, event.line.data, event.ref.run_id)

    async def _by_reference(self, record: ConsumerRecord, event: Scored) -> Outgoing:
        return result(record, await self.read_payload(event.ref, "line", event.line), event.ref.run_id)

    def _failure(self, record: ConsumerRecord) -> Outgoing | Awaitable[Outgoing]:
        event = codec.decode(_present(record.value), Failure)
        if event.row.size or event.response.size or event.original.size:
            return self._failure_by_reference(record, event)
        return _failed(record, event, Parts(event.row.data, event.response.data, event.original.data))

    async def _failure_by_reference(self, record: ConsumerRecord, event: Failure) -> Outgoing:
        parts, notes = {}, []
        for part, payload in (("row", event.row), ("response", event.response), ("original", event.original)):
            try:
                parts[part] = await self.read_payload(event.ref, part, payload) if payload.size else payload.data
            except RolloutError as e:
                notes.append(f"its {part} could not be fetched: {e}")
        return _failed(record, event, Parts(**parts), "; ".join(notes))


def told(record: ConsumerRecord, line: bytes) -> Outgoing | None:
    """A results line as the verifier worker wrote it, by what its header says; None when there is something to look at."""
    score = headers.read_score(record.headers)
    if score is None or b"\n" in line or b"\r" in line or not (line.startswith(b"{") and line.endswith(b"}")):
        return None
    run_id = _run_of(record)
    more = (
        (headers.RUN, run_id.encode()),
        (headers.ATTEMPT, score.attempt),
        (headers.OUTCOME, _SCORED),
        (OFFSET, b"%d" % record.offset),
        (REWARD, score.reward),
    )
    return Outgoing(RESULTS, run_id.encode() + b"/" + score.rollout, line, more)


def result(record: ConsumerRecord, line: bytes, run_id: str) -> Outgoing:
    """A results line, byte for byte as it came. Raises `DataError` when it is not one (platform.md A7)."""
    try:
        value = jsontext.loads_lenient(line)
    except (ValueError, RecursionError) as e:
        raise DataError(f"not JSON: {e}") from e
    if not isinstance(value, dict):
        raise DataError("expected a JSON object")
    reward = value.get("reward")
    if isinstance(reward, bool) or not isinstance(reward, int | float) or not math.isfinite(reward):
        raise DataError(f"reward must be a finite number, found {reward!r}")
    key = rollout_key(run_id, _index(value, TASK_INDEX), _index(value, ROLLOUT_INDEX))
    attempt = _index(value, ATTEMPT_INDEX, 0)
    text = jsontext.dumps(value) if b"\n" in line or b"\r" in line else line
    more = (REWARD, repr(reward).encode())
    return Outgoing(RESULTS, key, text, (*_headers(record, run_id, attempt, Outcome.SCORED), more))


def rollout_key(run_id: str, task_index: int, rollout_index: int) -> bytes:
    """Key of a line: the rollout without its attempt, as `RolloutRef.key` spells it."""
    return f"{run_id}/{task_index}-{rollout_index}".encode()


def offset_of(out: Outgoing) -> int:
    """Offset of the record that a line was made of."""
    return int(headers.value(out.headers, OFFSET) or 0)


def unreadable(record: ConsumerRecord, error: Exception) -> Outgoing:
    """The failure line of a record that cannot be read."""
    run_id = _run_of(record)
    place = str(Place(record.topic, record.partition, record.offset))
    rollout = (headers.value(record.headers, headers.ROLLOUT) or b"").decode(errors="replace")
    line = unreadable_line(run_id, place, error, record.value or b"", rollout)
    return Outgoing(FAILURES, None, line, _headers(record, run_id, 0, Outcome.FAILED))


def _failed(record: ConsumerRecord, event: Failure, parts: Parts, note: str = "") -> Outgoing:
    key = event.ref.key if event.ref else None
    attempt = event.ref.attempt if event.ref else 0
    return Outgoing(FAILURES, key, failure_line(event, parts, note), _headers(record, event.run_id, attempt, event.outcome))


def _headers(record: ConsumerRecord, run_id: str, attempt: int, outcome: str) -> tuple[tuple[str, bytes], ...]:
    return (
        (headers.RUN, run_id.encode()),
        (headers.ATTEMPT, b"%d" % attempt),
        (headers.OUTCOME, outcome.encode()),
        (OFFSET, b"%d" % record.offset),
    )


def _run_of(record: ConsumerRecord) -> str:
    return (headers.value(record.headers, headers.RUN) or DEFAULT_RUN.encode()).decode(errors="replace")


def _present(value: bytes | None) -> bytes:
    if not value:
        raise DataError("the record is empty")
    return value


def _index(line: dict[str, Any], name: str, default: int | None = None) -> int:
    value = line.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise DataError(f"{name} must be an integer ≥ 0, found {value!r}")
    return value
