"""Spans to an OpenTelemetry collector, over OTLP/HTTP, by OpenTelemetry's own SDK (extra `tracing`).

Owns the SDK: nothing else imports it. Invariant: sending happens in the SDK's thread, from a bounded queue; what a collector
does not take is dropped, and a rollout never waits for it.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from environments.extras import OURS, install_command
from schemas.errors import InfrastructureError
from services.tracing.span import Span, Spans

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

_SCOPE = "rollstream"


def otlp_spans(url: str, version: str) -> Spans:
    """Sends spans to `url` (such as `http://collector:4318/v1/traces`); `version` is ours.

    Headers, certificates and time-outs come from OpenTelemetry's own variables (`OTEL_EXPORTER_OTLP_HEADERS`, …). Raises
    `InfrastructureError` when the SDK is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as e:
        command = install_command(OURS, "tracing")
        raise InfrastructureError(f"tracing.url is set, and OpenTelemetry is missing: {command}") from e
    return SdkSpans(OTLPSpanExporter(endpoint=url), version)


class SdkSpans:
    """Spans as the SDK's, to any of its exporters."""

    def __init__(self, exporter: SpanExporter, version: str) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        instance = f"{socket.gethostname()}:{os.getpid()}"
        own = {"service.name": "rollstream", "service.version": version, "service.instance.id": instance}
        self._resource = Resource.create(own | _named_by_user())
        self._scope = InstrumentationScope(_SCOPE, version)
        self._processor = BatchSpanProcessor(exporter)

    def add(self, span: Span) -> None:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

        def context(span_id: int) -> SpanContext:
            return SpanContext(span.trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

        status = Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error)
        self._processor.on_end(
            ReadableSpan(
                span.name,
                context(span.span_id),
                None if span.parent_id is None else context(span.parent_id),
                self._resource,
                dict(span.attributes),
                kind=SpanKind.INTERNAL,
                instrumentation_scope=self._scope,
                status=status,
                start_time=span.start_ns,
                end_time=span.end_ns,
            )
        )

    def close(self) -> None:
        self._processor.shutdown()  # type: ignore[no-untyped-call]  # untyped upstream


def _named_by_user() -> dict[str, str]:
    """A service name that `OTEL_SERVICE_NAME` gives wins over ours."""
    name = os.environ.get("OTEL_SERVICE_NAME")
    return {"service.name": name} if name else {}
