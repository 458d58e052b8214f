"""The pipeline in this process, on a real Kafka: workers, a scripted model, and a reader of everything that comes out.

`async with running(kafka, topics, tmp_path) as pipe:` starts the agent, tool and verifier workers (and the sink when asked
to); `pipe.send` produces as a program does that knows nothing of the project; `pipe.ended(n)` waits for n records on
`scored-rollouts` and `failures` together; `pipe.idle()` until no worker holds anything; `pipe.everything()` reads every topic.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import support
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition

from environments.discovery import Entry, discover
from environments.manifest import AgentBlock, Manifest, Variant
from environments.registry import Registry
from rollstream.scripted import ScriptedModel
from schemas import codec, jsontext
from schemas.events import Failure
from schemas.topics import CONTROL, FAILURES, PROMPTS, SCORED, Topics
from services.agent_worker import app as agent_app
from services.models.endpoint import ModelEndpoint, RetryBudget, Timeouts
from services.models.replicas import client_of
from services.runtime.claims import ClaimStore
from services.runtime.clients import Clients
from services.runtime.connection import Connection
from services.runtime.control import Control
from services.runtime.stage import Stage
from services.runtime.worker import Pipeline, Worker
from services.sink import app as sink_app
from services.sink.single_file import SingleFile
from services.tool_worker import app as tool_app
from services.tracing.tracer import Tracer
from services.verifier_worker import app as verifier_app
from services.verifier_worker.groups import GroupBounds

KEY = "sk-a-secret-that-must-not-show"
OWN_AGENTS = ("Parallel", "Partner", "Opening", "Insisting", "Lost", "Silent", "Careful")
FAULTY = {
    "faulty": "simple_agent",
    "faulty_single": "non_executing_simple_agent",
    **{f"faulty_{name.lower()}": f"support.faulty.agents:{name}" for name in OWN_AGENTS},
}
MCQA = "mcqa_simple_agent"
QUESTION = "Pick one.\nA: 1\nB: 2\nC: 3\nEnd with \\boxed{}."


def registry() -> Registry:
    """The project's environments, one that misbehaves as its rows say (`support.faulty`), one that scores groups (`ranked`)."""
    variants = {v: Variant(agent=AgentBlock(name=f"{v}_agent", type=kind)) for v, kind in FAULTY.items()}
    limited = Variant(agent=AgentBlock(name="faulty_limited_agent", config={"max_steps": 2}))
    manifest = Manifest(name="faulty", description="", domain="tests", variants={**variants, "faulty_limited": limited})
    ranked = Manifest(name="ranked", description="", domain="tests", variants={"ranked": _variant("ranked")})
    folder = Path(next(iter(support.__path__)))
    found, broken = discover()
    own = [Entry(manifest, folder / "faulty", "support.faulty"), Entry(ranked, folder / "ranked", "support.ranked")]
    return Registry([*found, *own], broken)


def _variant(name: str) -> Variant:
    return Variant(agent=AgentBlock(name=f"{name}_agent", type="non_executing_simple_agent"))


def mcqa(number: int = 0, **fields: Any) -> dict[str, Any]:
    """A row of `mcqa` for which the scripted model picks some option."""
    return {"responses_create_params": {"input": f"{number}. {QUESTION}"}, "agent_ref": {"name": MCQA}, **fields}


def faulty(variant: str = "faulty", *, tools: bool = False, **fields: Any) -> dict[str, Any]:
    """A row of the environment that misbehaves; with `tools`, the model is offered the tool `poke`."""
    params: dict[str, Any] = {"input": "Go."}
    if tools:
        empty = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
        params["tools"] = [{"type": "function", "name": "poke", "description": "", "parameters": empty, "strict": True}]
    return {"responses_create_params": params, "agent_ref": {"name": f"{variant}_agent"}, **fields}


def endpoint(url: str, **settings: Any) -> ModelEndpoint:
    """The policy, with little patience and a key that is to stay secret."""
    timeouts = Timeouts(
        **{"connect_s": 2.0, "first_byte_s": 5.0, "body_s": 0.5, "call_s": 20.0, **settings.pop("timeouts", {})}
    )
    retries = RetryBudget(**{"max_attempts": 3, "base_s": 0.01, "cap_s": 0.05, **settings.pop("retries", {})})
    return ModelEndpoint(base_url=url, name="scripted", api_key=KEY, timeouts=timeouts, retries=retries, **settings)


@dataclass
class Bounds:
    """Limits of the workers; times in seconds."""

    in_flight: int = 256
    rollout_timeout_s: float = 30.0
    tool_timeout_s: float = 20.0
    verify_timeout_s: float = 20.0
    high_water: int = 20_000
    low_water: int = 10_000
    scored_format: Literal["json", "avro"] = "json"
    groups: GroupBounds = field(default_factory=GroupBounds)
    incomplete_groups: Literal["score", "fail"] = "score"

    def verifier(self) -> verifier_app.VerifierSettings:
        return verifier_app.VerifierSettings(
            self.in_flight,
            self.verify_timeout_s,
            self.scored_format,
            groups=self.groups,
            incomplete_groups=self.incomplete_groups,
        )


@dataclass
class Ended:
    """What came out, in order of arrival; `at` is when a record was read, by its rollout, in seconds of the clock."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    records: list[ConsumerRecord] = field(default_factory=list)
    at: dict[str, float] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return len(self.lines) + len(self.failures)

    def one(self) -> dict[str, Any]:
        """The only line, when nothing failed."""
        assert not self.failures, [(f.failure_class, f.message, f.detail) for f in self.failures]
        (line,) = self.lines
        return line

    def failure(self) -> Failure:
        """The only failure, when nothing was scored."""
        assert not self.lines
        (failure,) = self.failures
        return failure


class Pipe:
    """A running pipeline as a test sees it."""

    def __init__(self, kafka: Connection, topics: Topics, claims: ClaimStore, workers: Mapping[str, Worker]) -> None:
        self.kafka, self.topics, self.claims, self.workers = kafka, topics, claims, workers
        self.seen = Ended()
        self._producer = AIOKafkaProducer(**kafka.kwargs(), max_request_size=40 << 20)
        outputs = topics.name(SCORED), topics.name(FAILURES)
        self._reader = AIOKafkaConsumer(
            *outputs, **kafka.kwargs(), isolation_level="read_committed", auto_offset_reset="earliest", fetch_max_wait_ms=50
        )

    async def open(self) -> None:
        await asyncio.gather(self._producer.start(), self._reader.start(), *(w.start() for w in self.workers.values()))
        await until(lambda: all(w.ready for w in self.workers.values()), "the workers are ready")

    async def close(self) -> None:
        await asyncio.gather(*(w.stop(0) for w in self.workers.values()))
        await asyncio.gather(self._producer.stop(), self._reader.stop())

    async def send(
        self, *values: Any, key: bytes | None = None, headers: Sequence[tuple[str, bytes]] = (), partition: int | None = None
    ) -> list[Any]:
        """Produce onto `prompts`, in this order; objects as JSON. Returns the records' metadata."""
        data = [v if isinstance(v, bytes | None) else jsontext.dumps(v) for v in values]
        topic = self.topics.name(PROMPTS)
        keys = [b"tombstone" if v is None and key is None else key for v in data]  # a record has a key or a value
        sent = [
            await self._producer.send(topic, v, key=k, headers=list(headers), partition=partition)
            for k, v in zip(keys, data, strict=True)
        ]
        return list(await asyncio.gather(*sent))

    async def control(self, run: str, state: str) -> None:
        """Tell all workers about a run, and wait until they know."""
        value = None if state == "running" else jsontext.dumps({"state": state})
        await self._producer.send_and_wait(self.topics.name(CONTROL), value, key=run.encode())
        known = [c for w in self.workers.values() for c in w.clients if isinstance(c, Control)]
        await until(lambda: all(c._state(run) == state for c in known), f"every worker knows that {run} is {state}")

    def stage(self, name: str) -> Stage:
        """A stage by its name."""
        (found,) = [s for w in self.workers.values() for s in w.stages if s.settings.name == name]
        return found

    async def ended(self, count: int, timeout_s: float = 25) -> Ended:
        """Everything that has come out, once it is `count` records."""
        end = time.monotonic() + timeout_s
        while self.seen.count < count:
            assert time.monotonic() < end, f"{self.seen.count} of {count} records: {self.describe()}"
            await self.look()
        assert self.seen.count == count, f"{self.seen.count} records, expected {count}: {self.describe()}"
        return self.seen

    async def look(self, timeout_ms: int = 200) -> Ended:
        """Take up what has come out by now."""
        for records in (await self._reader.getmany(timeout_ms=timeout_ms)).values():
            for record in records:
                await self._take(record)
        return self.seen

    async def idle(self, timeout_s: float = 20) -> None:
        """Wait until no worker holds or can read anything."""
        await until(
            lambda: not any(s.in_flight for w in self.workers.values() for s in w.stages), "nothing in flight", timeout_s
        )

    async def everything(self) -> list[ConsumerRecord]:
        """Every committed record of every topic."""
        consumer = AIOKafkaConsumer(**self.kafka.kwargs(), isolation_level="read_committed", fetch_max_wait_ms=50)
        await consumer.start()
        try:
            parts = [TopicPartition(n, p) for n, count, _ in self.topics.declare() for p in range(count)]
            consumer.assign(parts)
            await consumer.seek_to_beginning(*parts)
            return await _to_the_end(consumer, parts)
        finally:
            await consumer.stop()

    def describe(self) -> str:
        counters = {s.settings.name: s.counters for w in self.workers.values() for s in w.stages}
        return f"{counters}; failures: {[(f.failure_class, f.message) for f in self.seen.failures]}"

    async def _take(self, record: ConsumerRecord) -> None:
        self.seen.records.append(record)
        self.seen.at[dict(record.headers).get("rs-rollout", b"").decode()] = time.monotonic()
        if record.topic == self.topics.name(FAILURES):
            self.seen.failures.append(codec.decode(record.value, Failure))
        else:
            self.seen.lines.append(jsontext.loads_lenient(record.value) if record.value[:1] == b"{" else {})


@contextlib.asynccontextmanager
async def running(
    kafka: Connection,
    topics: Topics,
    folder: Path,
    model: ScriptedModel | ModelEndpoint,
    *,
    stages: Sequence[str] = ("agent", "tool", "verifier"),
    bounds: Bounds | None = None,
    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once",
    claims_url: str = "",
    scope: str = "",
    clients: Clients | None = None,
    tracer: Tracer | None = None,
) -> AsyncIterator[Pipe]:
    """The workers of `stages`, started and ready; with `sink`, lines go to `folder/out.jsonl`."""
    b = bounds or Bounds()
    clients = clients or Clients()
    claims = ClaimStore(claims_url or str(folder / "claims"))
    pipeline = Pipeline(kafka, topics, {n: p for n, p, _ in topics.declare()}, delivery, scope, tracer=tracer)
    policy = model if isinstance(model, ModelEndpoint) else endpoint(model.base_url)
    found = registry()
    agent = agent_app.AgentSettings(b.in_flight, b.rollout_timeout_s, b.high_water, b.low_water)
    make: dict[str, Callable[[], Worker]] = {
        "agent": lambda: agent_app.build(pipeline, agent, found, claims, {"policy": client_of(policy)}, Clients()),
        "tool": lambda: tool_app.build(pipeline, tool_app.ToolSettings(b.in_flight, b.tool_timeout_s), found, claims, clients),
        "verifier": lambda: verifier_app.build(pipeline, b.verifier(), found, claims, clients),
        "sink": lambda: sink_app.build(
            pipeline, lambda *_: SingleFile(folder / "out.jsonl", run_id=scope or "default"), claims
        ),
    }
    pipe = Pipe(kafka, topics, claims, {name: make[name]() for name in stages})
    try:
        await pipe.open()
        yield pipe
    finally:
        await pipe.close()
        claims.close()


async def until(holds: Callable[[], bool], what: str, timeout_s: float = 20) -> None:
    """Wait until `holds()`, or fail saying what was waited for."""
    end = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end, f"not within {timeout_s:g} s: {what}"
        await asyncio.sleep(0.01)


def size_of(record: ConsumerRecord) -> int:
    """Bytes of a record that a user pays for: key, value, headers."""
    return len(record.key or b"") + len(record.value or b"") + sum(len(k) + len(v) for k, v in record.headers)


async def _to_the_end(consumer: AIOKafkaConsumer, parts: Sequence[TopicPartition]) -> list[ConsumerRecord]:
    ends = await consumer.end_offsets(parts)
    found: list[ConsumerRecord] = []
    end = time.monotonic() + 15
    while [p for p in parts if await consumer.position(p) < ends[p]]:
        assert time.monotonic() < end, "the topics' ends were not reached"
        found += [r for records in (await consumer.getmany(timeout_ms=100)).values() for r in records]
    return found
