"""Spans of traced rollouts (platform.md G4): who is traced, what hangs under what, and that nothing else changes."""

import asyncio
from itertools import count

import pytest
from unit.runtime.scripted import P0

from environments.response import Response
from schemas import codec, headers, trace
from schemas.errors import FailureClass, ModelError, ToolError
from schemas.events import Payload, Trajectory
from schemas.identity import Place, RolloutRef
from services.runtime.clients import Clients
from services.runtime.failures import Failures
from services.runtime.record import HELD, ConsumerRecord, Outgoing, Together
from services.tracing.calls import TracedModels, traced_call, traced_tool
from services.tracing.step import TracedKeeper, TracedStep
from services.tracing.tracer import CURRENT, Tracer

REF = RolloutRef("run-1", "t", 3, 1)
STARTED_MS = 1_800_000_000_000
SCORED, FAILED = "p.scored", "p.failures"


class Kept:
    def __init__(self):
        self.spans, self.closed = [], 0

    def add(self, span):
        self.spans.append(span)

    def close(self):
        self.closed += 1

    def names(self):
        return [s.name for s in self.spans]


@pytest.fixture
def kept():
    return Kept()


def tracer(kept, sample=1.0):
    ticks = count(STARTED_MS * 1_000_000, 1_000_000)
    return Tracer(kept, sample, lambda: next(ticks))


def record(value=b"", ref=REF, traceparent=None, offset=0):
    found = headers.of(ref, (headers.TRACE, traceparent or trace.started(ref)))
    return ConsumerRecord("in", 0, offset, STARTED_MS - 250, 0, b"k", value, None, 0, 0, found)


def traced(step, kept, sample=1.0):
    return TracedStep(step, "agent", tracer(kept, sample), SCORED, FAILED)


def trajectory(ref=REF):
    return codec.encode(
        Trajectory(ref, "mcqa", "a", Place("p", 0, 0), STARTED_MS - 9_000, STARTED_MS, Payload(b"{}"), Payload(b"{}"), turns=2)
    )


def scored(ref=REF):
    return Outgoing(SCORED, b"k", b"{}", headers.of(ref, headers.score_of(ref, 0.5), (headers.TRACE, trace.started(ref))))


async def test_a_step_has_a_span_below_its_rollouts_and_calls_have_theirs_below_it(kept):
    async def step(_):
        trail = CURRENT.get()

        async def call():
            await asyncio.sleep(0)
            return Response({"id": "resp_1", "model": "m-1", "usage": {"input_tokens": 5, "output_tokens": 7}})

        await asyncio.gather(*(traced_call(trail, "policy", "m", call(), lambda r: r.body) for _ in range(2)))
        assert traced_tool(trail, "poke", "c1", lambda: "poked") == "poked"
        return ()

    assert await traced(step, kept)(record()) == ()
    assert CURRENT.get() is None
    assert kept.names() == ["chat m", "chat m", "execute_tool poke", "agent"]
    *calls, own = kept.spans
    context = trace.parse(trace.started(REF))
    assert {s.trace_id for s in kept.spans} == {context.trace_id}
    assert own.parent_id == context.span_id == trace.span_of(b"run-1", b"3-1")
    assert {s.parent_id for s in calls} == {own.span_id}
    assert len({s.span_id for s in kept.spans}) == 4
    assert calls[0].attributes["gen_ai.usage.output_tokens"] == 7
    assert own.attributes["rollstream.waited_ms"] == 250
    assert all(s.start_ns <= s.end_ns for s in kept.spans)


async def test_a_scored_rollout_ends_with_a_span_from_its_admission_on_under_what_its_prompt_named(kept):
    step = traced(lambda _: [scored()], kept)
    step(record(trajectory()))
    step(record(trajectory(), traceparent=b"00-" + b"c" * 32 + b"-" + b"d" * 16 + b"-01"))
    _, ours, _, theirs = kept.spans
    assert (ours.name, ours.parent_id, ours.error) == ("rollout", None, None)
    assert ours.start_ns == (STARTED_MS - 9_000) * 1_000_000
    assert (ours.attributes["rollstream.reward"], ours.attributes["rollstream.environment"]) == (0.5, "mcqa")
    assert (theirs.trace_id, theirs.parent_id) == (int("c" * 32, 16), int("d" * 16, 16))
    assert theirs.span_id == ours.span_id


async def test_a_failed_rollout_says_of_which_class(kept):
    failures = Failures(FAILED, "agent", FailureClass.TOOL)

    async def step(found):
        return failures.of_step(found, ToolError("no"))

    event = codec.decode(trajectory(), Trajectory)
    await traced(step, kept)(record(codec.encode(event)))
    assert [(s.name, s.error) for s in kept.spans] == [("agent", "tool"), ("rollout", "failed: tool")]


async def test_a_prompt_has_a_span_for_each_rollout_that_it_became(kept):
    refs = [RolloutRef("run-1", "t", 3, i) for i in range(3)]
    outs = [Outgoing("turns", b"k", b"", headers.of(r, (headers.TRACE, trace.started(r)))) for r in refs]
    prompt = ConsumerRecord("prompts", 0, 7, STARTED_MS, 0, None, b"{}", None, 0, 0, ())
    assert traced(lambda _: outs, kept)(prompt) is outs
    assert [s.trace_id for s in kept.spans] == [trace.parse(trace.started(r)).trace_id for r in refs]


@pytest.mark.parametrize(
    ("sample", "traceparent", "spans"),
    [
        (1.0, b"00-" + b"f" * 32 + b"-" + b"1" * 16 + b"-01", 1),
        (0.99, b"00-" + b"f" * 32 + b"-" + b"1" * 16 + b"-01", 0),
        (1.0, b"00-" + b"f" * 32 + b"-" + b"1" * 16 + b"-00", 0),  # its prompt says: not recorded
        (1.0, b"nonsense", 0),
        (0.01, b"00-" + b"f" * 18 + b"0" * 14 + b"-" + b"1" * 16 + b"-01", 1),
        (0.0, b"00-" + b"f" * 18 + b"0" * 14 + b"-" + b"1" * 16 + b"-01", 0),
    ],
)
def test_a_rollout_is_traced_by_its_trace_id_alone(kept, sample, traceparent, spans):
    answer = []
    assert traced(lambda _: answer, kept, sample)(record(traceparent=traceparent)) is answer
    assert len(kept.spans) == spans


def test_about_as_many_rollouts_are_traced_as_was_asked_for(kept):
    step = traced(lambda _: (), kept, 0.1)
    for i in range(2_000):
        step(record(ref=RolloutRef("r", "t", i, 0)))
    assert 140 < len(kept.spans) < 260


async def test_a_step_that_raises_raises_and_its_span_says_what(kept):
    async def step(_):
        raise ModelError("gone")

    with pytest.raises(ModelError):
        await traced(step, kept)(record())
    assert [(s.name, s.error) for s in kept.spans] == [("agent", "ModelError")]


async def test_held_records_have_spans_when_they_are_finished_together(kept):
    refs = [RolloutRef("run-1", "t", 3, i) for i in range(2)]
    records = {i: record(trajectory(r), r, offset=i) for i, r in enumerate(refs)}

    async def work():
        return {i: [scored(r)] for i, r in enumerate(refs)}

    class Holder:
        full = False

        def due(self, partition, *, caught_up, stuck):
            return Together((0, 1), work, records) if caught_up else None

    step = traced(lambda _: HELD, kept)
    assert step(records[0]) is HELD
    assert kept.spans == []
    keeper = TracedKeeper(Holder(), step.together)
    assert keeper.due(P0.partition, caught_up=False, stuck=False) is None
    assert set(await keeper.due(P0.partition, caught_up=True, stuck=False).work()) == {0, 1}
    assert kept.names() == ["agent", "rollout"] * 2


async def test_environment_code_finds_traced_models_only_where_a_rollout_is_traced(kept):
    class Judge:
        async def create(self, params):
            raise ModelError("no")

    clients = Clients(models={"judge": Judge()})
    await clients.start()
    assert not isinstance(clients.context(REF, 0).models, TracedModels)
    token = CURRENT.set(tracer(kept).trail(record().headers))
    context = clients.context(REF, 0)
    CURRENT.reset(token)
    assert (list(context.models), len(context.models)) == (["judge"], 1)
    with pytest.raises(ModelError):
        await context.model("judge").create({})
    assert [(s.name, s.error) for s in kept.spans] == [("chat judge", "ModelError")]


async def test_tools_answer_and_raise_as_they_would(kept):
    trail = tracer(kept).trail(record().headers)

    async def later():
        return 1

    def broken():
        raise ValueError

    assert await traced_tool(trail, "a", "1", later) == 1
    with pytest.raises(ValueError):
        traced_tool(trail, "b", "2", broken)
    assert [(s.name, s.error) for s in kept.spans] == [("execute_tool a", None), ("execute_tool b", "ValueError")]


async def test_the_last_worker_hands_on_what_is_held(kept):
    shared = tracer(kept)
    await shared.start()
    await shared.start()
    await shared.close()
    assert kept.closed == 0
    await shared.close()
    assert kept.closed == 1
