"""Which rollouts are traced, and the spans of those that are.

Owns sampling and parenthood. Invariants: all workers trace the same rollouts without a word to each other, because the choice
is a function of the trace id; every span of a rollout hangs under the one that stands for all of it, whose id is a function of
the rollout, so no header has to be rewritten on the way.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field

from schemas import headers, trace
from services.tracing.span import Span, Spans, Value

_RATIO_BITS = 56
"""Bits of a trace id that decide, the lowest: W3C Trace Context Level 2 promises randomness of these."""

_CLOSE_S = 3.0
"""For handing on what is held, at the end of a worker: within the time that its process has for closing."""


@dataclass(slots=True)
class Tracer:
    """Traces the part `sample` (0 to 1) of rollouts. Started and closed by each worker that shares it; the last one closes."""

    spans: Spans
    sample: float
    now_ns: Callable[[], int] = time.time_ns
    new_id: Callable[[], int] = lambda: secrets.randbits(64) or 1
    _users: int = 0
    _below: int = field(init=False)

    def __post_init__(self) -> None:
        self._below = int(self.sample * (1 << _RATIO_BITS))

    async def start(self) -> None:
        self._users += 1

    async def close(self) -> None:
        """Hand on what is held, within `_CLOSE_S`; what a collector does not take by then is given up."""
        self._users -= 1
        if self._users <= 0:
            await asyncio.wait([asyncio.ensure_future(asyncio.to_thread(self.spans.close))], timeout=_CLOSE_S)

    def trail(self, found: headers.Headers) -> Trail | None:
        """Where spans of the record with these headers belong; None when its rollout is not traced."""
        context = trace.parse(headers.value(found, headers.TRACE))
        if context is None or not context.sampled or context.trace_id & ((1 << _RATIO_BITS) - 1) >= self._below:
            return None
        run, rollout = headers.value(found, headers.RUN) or b"", headers.value(found, headers.ROLLOUT)
        if rollout is None:
            return None
        return Trail(self, context, run, rollout, trace.span_of(run, rollout))


@dataclass(frozen=True, slots=True)
class Trail:
    """A place in a traced rollout: further spans go below `span_id`."""

    tracer: Tracer
    context: trace.TraceContext
    run: bytes
    rollout: bytes
    span_id: int

    def below(self) -> Trail:
        """A place for a new span below this one: its id is `span_id`."""
        return Trail(self.tracer, self.context, self.run, self.rollout, self.tracer.new_id())

    def add(
        self, name: str, start_ns: int, attributes: Mapping[str, Value], error: str | None = None, span_id: int | None = None
    ) -> None:
        """A span that ends now, below this place."""
        found = span_id if span_id is not None else self.tracer.new_id()
        end_ns = max(start_ns, self.tracer.now_ns())
        self.tracer.spans.add(Span(name, self.context.trace_id, found, self.span_id, start_ns, end_ns, attributes, error))

    def add_whole(self, start_ns: int, attributes: Mapping[str, Value], error: str | None = None) -> None:
        """The span of the whole rollout, which ends now; below whatever span its prompt named."""
        parent = None if self.context.span_id == self.span_id else self.context.span_id
        end_ns = max(start_ns, self.tracer.now_ns())
        span = Span("rollout", self.context.trace_id, self.span_id, parent, start_ns, end_ns, attributes, error)
        self.tracer.spans.add(span)


CURRENT: ContextVar[Trail | None] = ContextVar("rollstream_trail", default=None)
"""The trail of the record that the running step works on: model calls and tools find it here. None costs them 50 ns."""
