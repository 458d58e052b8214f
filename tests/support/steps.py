"""The workers' steps without a broker: real registry, claims and side threads; scripted policy, control and clock."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiokafka
from support.pipeline import registry

from environments.registry import Registry
from schemas import codec, jsontext
from schemas.errors import FailureClass
from schemas.events import Failure, Payload, Rollout, ToolCalls, Trajectory, Turn
from schemas.identity import Place, RolloutRef
from services.agent_worker.admission import Admission, AdmissionTools
from services.agent_worker.seen import Seen
from services.agent_worker.step import TurnStep, TurnTools
from services.runtime.claims import ClaimStore
from services.runtime.clients import Clients
from services.runtime.failures import Failures
from services.runtime.offload import Offload
from services.runtime.record import Outgoing
from services.runtime.scope import Scope
from services.tool_worker.step import ToolStep, ToolTools
from services.verifier_worker.step import VerifyStep, VerifyTools

NOW = 1_800_000_000.0
REF = RolloutRef("r", "t", 7, 1)
SOURCE = Place("p.prompts", 1, 42)
EVENTS: dict[str, type[Any]] = {
    "turns": Turn, "tool-calls": ToolCalls, "trajectories": Trajectory, "failures": Failure,
}  # fmt: skip


def record(
    topic: str, value: bytes | None, headers: Sequence[tuple[str, bytes]] = (), *, partition: int = 1, offset: int = 42
) -> Any:
    return aiokafka.ConsumerRecord(f"p.{topic}", partition, offset, 0, 0, b"key", value, None, 0, 0, tuple(headers))


def rollout(row: Mapping[str, Any], variant: str = "faulty", **changes: Any) -> Rollout:
    """A rollout that was just admitted."""
    values: dict[str, Any] = {"ref": REF, "environment": variant, "agent": f"{variant}_agent", "source": SOURCE}
    values |= {"admitted_ms": int(NOW * 1000), "row": Payload(jsontext.dumps(row)), "deadline_ms": int(NOW * 1000) + 60_000}
    return Rollout(**(values | changes))


def read(out: Outgoing) -> Any:
    """The event in an outgoing record."""
    return codec.decode(out.value, EVENTS[out.topic.removeprefix("p.")])


def reply(*items: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "error": None,
        "output": list(items),
        "usage": None,
        **fields,
    }


def said(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}


def called(name: str = "poke", arguments: str = "{}", call_id: str = "c1") -> dict[str, Any]:
    return {"type": "function_call", "id": f"f{call_id}", "call_id": call_id, "name": name, "arguments": arguments}


def usage(tokens: int, cached: int | None = 0) -> dict[str, Any]:
    details = {"input_tokens_details": {"cached_tokens": cached}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1, **details}


class ScriptedPolicy:
    """Gives its replies in order (an exception is raised, a callable is awaited); `requests`, `keys`, `deadlines` as asked."""

    def __init__(self, *replies: Any) -> None:
        self.endpoint = SimpleNamespace(name="policy-model")
        self.replies = list(replies)
        self.requests: list[Any] = []
        self.keys: list[str] = []
        self.deadlines: list[float | None] = []

    async def create(self, body: bytes, *, idempotency_key: str, deadline: float | None, session: str = "") -> Any:
        self.requests.append(jsontext.loads_lenient(body))
        self.keys.append(idempotency_key)
        self.deadlines.append(deadline)
        answer = self.replies.pop(0)
        if callable(answer):
            answer = await answer()
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(body=answer)


class Control:
    def __init__(self) -> None:
        self.cancelled: set[str] = set()

    def is_cancelled(self, run: str) -> bool:
        return run in self.cancelled


class Pressure:
    def __init__(self) -> None:
        self.count = 0

    def admitted(self, rollouts: int) -> None:
        self.count += rollouts


@dataclass
class Bench:
    """One of each step, and what they share. `now` is the clock."""

    claims: ClaimStore
    offload: Offload
    registry: Registry = field(default_factory=registry)
    control: Control = field(default_factory=Control)
    pressure: Pressure = field(default_factory=Pressure)
    clients: Clients = field(default_factory=Clients)
    now: float = NOW
    scope: str = ""
    timeout_s: float = 5.0

    def admission(self, window: int = 1000) -> Admission:
        tools: Any = AdmissionTools(
            "p.turns", "p.tool-calls", self.registry, self._failures("agent", FailureClass.INFRASTRUCTURE), self.claims,
            self.control, self.pressure, self.offload, self.clients, Scope(self.scope), 60.0, self._now,
        )  # fmt: skip
        return Admission(tools, Seen(window))

    def turn(self, *replies: Any, policy: ScriptedPolicy | None = None) -> TurnStep:
        tools: Any = TurnTools(
            "p.turns", "p.tool-calls", "p.trajectories", self.registry, {"policy": policy or ScriptedPolicy(*replies)},
            self._failures("agent", FailureClass.INFRASTRUCTURE), self.claims, self.control, Scope(self.scope), self._now,
        )  # fmt: skip
        return TurnStep(tools)

    def tool(self) -> ToolStep:
        tools: Any = ToolTools(
            "p.turns", self.registry, self._failures("tool", FailureClass.TOOL), self.claims, self.control, self.offload,
            self.clients, Scope(self.scope), self.timeout_s, self._now,
        )  # fmt: skip
        return ToolStep(tools)

    def verify(self, scored_format: Any = "json") -> VerifyStep:
        tools: Any = VerifyTools(
            "p.scored-rollouts", self.registry, self._failures("verifier", FailureClass.VERIFIER), self.claims, self.control,
            self.offload, self.clients, Scope(self.scope), self.timeout_s, scored_format, self._now,
        )  # fmt: skip
        return VerifyStep(tools)

    async def admit(self, value: Any, admission: Admission | None = None, **place: Any) -> list[Outgoing]:
        """The outputs of one prompt."""
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        made = (admission or self.admission())(record("prompts", data, **place))
        return list(await made if asyncio.iscoroutine(made) else made)

    async def take(self, step: TurnStep | ToolStep | VerifyStep, topic: str, event: Any) -> Outgoing:
        """The only output of an event."""
        (out,) = await step(record(topic, codec.encode(event)))
        return out

    def _failures(self, stage: str, blame: FailureClass) -> Failures:
        return Failures("p.failures", stage, blame, self._now)

    def _now(self) -> float:
        return self.now


@contextlib.asynccontextmanager
async def bench(folder: Path) -> AsyncIterator[Bench]:
    offload, claims = Offload("test"), ClaimStore(str(folder / "claims"))
    await offload.start()
    try:
        yield Bench(claims, offload)
    finally:
        await offload.close()
        claims.close()
