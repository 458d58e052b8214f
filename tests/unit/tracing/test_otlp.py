"""Spans over OTLP/HTTP to a collector on the loopback, read by OpenTelemetry's own messages."""

import gzip
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from services.tracing.otlp import otlp_spans
from services.tracing.span import Span

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

SPAN = Span("chat m", 0xA << 100, 0xB << 40, 0xC << 40, 1_000, 2_000, {"gen_ai.usage.output_tokens": 7}, "ModelError")


@pytest.fixture
def collector():
    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/traces", got
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_span_arrives_whole(collector, monkeypatch):
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    monkeypatch.setenv("OTEL_SERVICE_NAME", "team-a")
    url, got = collector
    spans = otlp_spans(url, "1.2.3")
    spans.add(SPAN)
    spans.close()
    ((path, body),) = got
    assert path == "/v1/traces"
    (found,) = ExportTraceServiceRequest.FromString(body).resource_spans
    about = {a.key: a.value.string_value for a in found.resource.attributes}
    assert (about["service.name"], about["service.version"]) == ("team-a", "1.2.3")
    (span,) = found.scope_spans[0].spans
    assert (span.name, span.trace_id.hex(), span.span_id.hex()) == ("chat m", f"{SPAN.trace_id:032x}", f"{SPAN.span_id:016x}")
    assert span.parent_span_id.hex() == f"{SPAN.parent_id:016x}"
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (1_000, 2_000)
    assert (span.status.code, span.status.message) == (2, "ModelError")
    assert span.attributes[0].value.int_value == 7
