"""One trace id from prompt to scored record, its spans, and the metrics of the workers (platform.md G4), on a real Kafka."""

from __future__ import annotations

import aiohttp
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families
from support.pipeline import faulty, mcqa, running, until

from rollstream.scripted import Options, ScriptedModel
from schemas import headers, trace
from schemas.identity import RolloutRef
from schemas.topics import SCORED, TOOL_CALLS, TRAJECTORIES, TURNS
from services.metrics import catalogue
from services.runtime.health import Health
from services.tracing.otlp import SdkSpans
from services.tracing.tracer import Tracer

pytestmark = pytest.mark.integration

ALL = ("agent", "tool", "verifier", "sink")
GIVEN = b"00-" + b"c" * 32 + b"-" + b"d" * 16 + b"-01"


async def test_one_trace_id_from_prompt_to_scored_record_through_a_tool_call(kafka, topics, tmp_path):
    """A bare prompt, one that brings its trace, one that says it is not to be recorded, and one that fails."""
    exporter = InMemorySpanExporter()
    tracer = Tracer(SdkSpans(exporter, "test"), 1.0)
    silent = GIVEN[:-2] + b"00"
    async with (
        ScriptedModel(Options(tool_turns=1)) as model,
        running(kafka, topics, tmp_path, model, stages=ALL, scope="r", tracer=tracer) as pipe,
    ):
        await pipe.send({"row": faulty(tools=True), "run_id": "r", "task_id": "bare", "task_index": 0})
        await pipe.send(
            {"row": faulty(tools=True), "run_id": "r", "task_id": "given", "task_index": 1}, headers=[(headers.TRACE, GIVEN)]
        )
        await pipe.send({"row": mcqa(), "run_id": "r", "task_id": "s", "task_index": 2}, headers=[(headers.TRACE, silent)])
        await pipe.send({"row": faulty(verify_does="raise"), "run_id": "r", "task_id": "f", "task_index": 3})
        ended = await pipe.ended(4)
        await until(lambda: pipe.stage("sink").counters.finished >= 4, "the sink has taken them all")
        records = [r for r in await pipe.everything() if headers.value(r.headers, headers.ROLLOUT) is not None]
    started = {i: trace.started(RolloutRef("r", t, i, 0)) for i, t in ((0, "bare"), (3, "f"))}
    wanted = {b"0-0": started[0], b"1-0": GIVEN, b"2-0": silent, b"3-0": started[3]}
    found = {(headers.value(r.headers, headers.ROLLOUT), headers.value(r.headers, headers.TRACE)) for r in records}
    assert found == set(wanted.items())
    walked = {r.topic for r in records if headers.value(r.headers, headers.ROLLOUT) == b"0-0"}
    assert walked == {topics.name(t) for t in (TURNS, TOOL_CALLS, TRAJECTORIES, SCORED)}
    assert len(ended.failures) == 1
    _check_spans(exporter.get_finished_spans(), {k: trace.parse(v) for k, v in wanted.items()})


def _check_spans(spans, contexts):
    by_trace = {name: [s for s in spans if s.context.trace_id == c.trace_id] for name, c in contexts.items()}
    whole = [
        "admission",
        "agent",
        "agent",
        "chat scripted",
        "chat scripted",
        "execute_tool poke",
        "rollout",
        "sink",
        "tool",
        "verifier",
    ]
    assert sorted(s.name for s in by_trace[b"0-0"]) == whole
    assert sorted(s.name for s in by_trace[b"1-0"]) == whole, "the silent prompt has the same trace id and no span"
    for name in (b"0-0", b"1-0", b"3-0"):
        spans = {s.context.span_id: s for s in by_trace[name]}
        (rollout,) = [s for s in spans.values() if s.name == "rollout"]
        for span in spans.values():
            assert span is rollout or span.parent.span_id in spans, f"{span.name} hangs nowhere"
            assert rollout.start_time <= span.end_time
            parent = None if span is rollout else spans[span.parent.span_id]
            assert parent is None or (parent.name == "agent") == span.name.startswith("chat")
            assert parent is None or (parent.name == "tool") == span.name.startswith("execute_tool")
    (given,) = [s for s in by_trace[b"1-0"] if s.name == "rollout"]
    assert given.parent.span_id == contexts[b"1-0"].span_id, "under the span that its prompt named"
    (failed,) = [s for s in by_trace[b"3-0"] if s.name == "rollout"]
    assert failed.status.description == "failed: verifier"
    assert failed.parent is None


async def test_metrics_of_workers_that_work_are_scraped_and_parsed(kafka, topics, tmp_path):
    async with (
        ScriptedModel(Options(tool_turns=1)) as model,
        running(kafka, topics, tmp_path, model, stages=ALL, scope="r") as pipe,
    ):
        health = Health(list(pipe.workers.values()), "127.0.0.1", 0)
        await health.start()
        await pipe.send(*({"row": faulty(tools=True), "run_id": "r"} for _ in range(3)))
        await pipe.send({"row": faulty(verify_does="raise"), "run_id": "r"})
        await pipe.ended(4)
        await until(lambda: pipe.stage("sink").counters.finished >= 4, "the sink has taken them all")
        async with aiohttp.ClientSession() as session, session.get(health.url + "/metrics") as answer:
            page = await answer.text()
        await health.close()
    families = {f.name: f for f in text_string_to_metric_families(page)}
    known = {m.name.removesuffix("_total"): m.kind for m in catalogue.ALL}
    assert {name: f.type for name, f in families.items()}.items() <= known.items()
    values = {(s.name, *s.labels.values()): s.value for f in families.values() for s in f.samples}
    assert values["rollstream_stage_finished_total", "admission"] == 4
    assert values["rollstream_stage_finished_total", "agent"] == 7
    assert values["rollstream_stage_seconds_count", "tool"] == 3
    assert values["rollstream_stage_recovered_total", "verifier"] == 0
    assert values["rollstream_sink_lines_total", "results"] == 3
    assert values["rollstream_sink_lines_total", "failures"] == 1
    assert values["rollstream_failures_total", "verifier", "verifier"] == 1
    assert values["rollstream_model_calls_total", "agent", "scripted", model.base_url] == 7
    assert all(v <= topics.partitions for k, v in values.items() if k[0] == "rollstream_stage_lag"), "control records at most"
    assert len([k for k in values if k[0] == "rollstream_stage_lag"]) >= 5
    assert values["rollstream_admission_open",] == 1
