"""Failure events: every way in which a stage gives up on a rollout or a message (design §2, "one bad thing costs one thing").

Invariant: an exception becomes exactly one record in `failures`, with its class, its reason and what the record held.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from schemas import codec, headers, trace
from schemas.errors import FailureClass, Outcome, RolloutError
from schemas.events import Failure, Payload, Rollout, ToolCalls, Trajectory, Turn
from schemas.identity import DEFAULT_RUN, MAX_ID_LENGTH, Place, RolloutRef
from schemas.topics import FAILURES, INLINE_LIMIT
from services.runtime.record import ConsumerRecord, Outgoing, Outputs

_MAX_TEXT = 4_000
"""Characters of a message or detail that are kept: enough for a server's error page, not enough to fill the topic."""

_MAX_TRACE = 512
"""Bytes of a trace context. The standard's has 55; a header of megabytes would make every later record too large."""

_MAX_KEY = 1_024
"""Bytes of an unreadable record's key that are kept, so that key and original together fit into a failure."""

_MAX_ORIGINAL = FAILURES.max_message_bytes - 2 * INLINE_LIMIT
"""Bytes of an offending record that are kept: all of it, with room for the failure's own fields in the topic's limit."""


@dataclass(frozen=True, slots=True)
class Failures:
    """Makes the failure records of one stage. `blame` is the class of an exception that carries none.

    `made` counts them by class, since the worker began.
    """

    topic: str
    stage: str
    blame: FailureClass
    now: Callable[[], float] = time.time
    made: Counter[str] = field(default_factory=Counter)

    def of_rollout(self, error: Exception, rollout: Rollout | Trajectory, record: ConsumerRecord) -> Outgoing:
        """The failure of a rollout that was understood; what the policy had said by then goes with it."""
        response = rollout.response if isinstance(rollout, Trajectory) else Payload(_cut(rollout.items))
        event = self._event(
            error,
            record,
            rollout.ref,
            environment=rollout.environment,
            agent=rollout.agent,
            source=rollout.source,
            elapsed_ms=max(0, self._now_ms() - rollout.admitted_ms),
            row=rollout.row,
            response=response,
        )
        return self._outgoing(event, rollout.ref, record)

    def of_ref(
        self,
        error: Exception,
        ref: RolloutRef,
        record: ConsumerRecord,
        row: bytes,
        environment: str,
        agent: str,
        *,
        original: bytes = b"",
    ) -> Outgoing:
        """The failure of a rollout that has an identity and has not begun. `original`: the record, when it is not the row."""
        event = self._event(
            error,
            record,
            ref,
            environment=environment,
            agent=agent,
            source=place_of(record),
            row=Payload(row),  # at most `MAX_PROMPT_BYTES`; half a row could not be read
            original=Payload(original[: _MAX_ORIGINAL - len(row)]),
        )
        return self._outgoing(event, ref, record)

    def of_record(self, error: Exception, record: ConsumerRecord) -> Outgoing:
        """The failure of a record that could not be read: its bytes are kept."""
        event = self._event(
            error, record, None, source=place_of(record), original=Payload((record.value or b"")[:_MAX_ORIGINAL])
        )
        return self._outgoing(event, None, record)

    def of_step(self, record: ConsumerRecord, error: Exception) -> Outputs:
        """The failure of a record whose step raised or ran over: of its rollout when that can be read."""
        rollout = _rollout_in(record.value or b"")
        return [self.of_record(error, record) if rollout is None else self.of_rollout(error, rollout, record)]

    def _event(self, error: Exception, record: ConsumerRecord, ref: RolloutRef | None, **more: object) -> Failure:
        run = headers.value(record.headers, headers.RUN) or DEFAULT_RUN.encode()
        failure_class = str(error.failure_class if isinstance(error, RolloutError) else self._class_of(error))
        self.made[failure_class] += 1
        return Failure(
            run_id=ref.run_id if ref else run.decode("utf-8", "replace")[:MAX_ID_LENGTH],
            failure_class=failure_class,
            outcome=str(error.outcome if isinstance(error, RolloutError) else Outcome.FAILED),
            stage=self.stage,
            error_type=type(error).__name__,
            message=_text(str(error) if isinstance(error, RolloutError) else _named(error)),
            detail=_text(error.detail if isinstance(error, RolloutError) else ""),
            retryable=error.retryable if isinstance(error, RolloutError) else True,
            failed_ms=self._now_ms(),
            ref=ref,
            place=place_of(record),
            **more,  # type: ignore[arg-type]
        )

    def _class_of(self, error: Exception) -> FailureClass:
        return FailureClass.TIMEOUT if isinstance(error, TimeoutError) else self.blame

    def _outgoing(self, event: Failure, ref: RolloutRef | None, record: ConsumerRecord) -> Outgoing:
        more = [(headers.OUTCOME, event.outcome.encode()), *trace_of(record, ref or place_of(record))]
        if ref is None:
            key = record.key[:_MAX_KEY] if record.key else record.key
            return Outgoing(self.topic, key, codec.encode(event), [(headers.RUN, event.run_id.encode()), *more])
        return Outgoing(self.topic, ref.task_key, codec.encode(event), headers.of(ref, *more))

    def _now_ms(self) -> int:
        return int(self.now() * 1000)


def place_of(record: ConsumerRecord) -> Place:
    """Where a record lies."""
    return Place(record.topic, record.partition, record.offset)


def trace_of(record: ConsumerRecord, begin: RolloutRef | Place | None = None) -> list[tuple[str, bytes]]:
    """The record's trace context, to be passed on; what is too long to be one is left behind.

    Where there is none, that of the rollout (or place) `begin` begins.
    """
    value = headers.value(record.headers, headers.TRACE)
    if value is None or len(value) > _MAX_TRACE:
        if begin is None:
            return []
        value = trace.started(begin) if isinstance(begin, RolloutRef) else trace.started_at(str(begin))
    return [(headers.TRACE, value)]


def _rollout_in(data: bytes) -> Rollout | Trajectory | None:
    """The rollout of an inner event, whichever event it is."""
    with contextlib.suppress(RolloutError):
        return codec.decode(data, Turn).rollout
    with contextlib.suppress(RolloutError):
        return codec.decode(data, ToolCalls).rollout
    with contextlib.suppress(RolloutError):
        return codec.decode(data, Trajectory)
    return None


def _cut(data: bytes) -> bytes:
    return data[:INLINE_LIMIT]


def _named(error: Exception) -> str:
    """An exception of somebody else's making, in words; its own `repr` may be broken, too."""
    try:
        return repr(error)
    except Exception as e:  # noqa: BLE001 - a failure that cannot be recorded would stop the worker
        return f"{type(error).__name__} (its repr raised {type(e).__name__})"


def _text(text: str) -> str:
    """Text that Avro can hold: lone surrogates escaped, cut to a bound."""
    cut = text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}… ({len(text):,} characters)"
    return cut.encode("utf-8", "backslashreplace").decode()
