"""The verifier's step at full speed on answers that take long to check, without Kafka: what it costs the event loop.

`python -m benchmarks.heavy COUNT [thread]` prints, as one JSON line, how late the loop ran its timers, verifications per
second, and this process's CPU for each; with `thread`, in a side thread of this process instead of the process pool.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from types import SimpleNamespace
from typing import Any

import aiokafka
import uvloop

from benchmarks import usage
from benchmarks.pipeline import Lag
from benchmarks.rows import rows
from environments.registry import Registry
from environments.testing import response
from schemas import codec, jsontext
from schemas.errors import FailureClass
from schemas.events import Payload, Trajectory
from schemas.identity import Place, RolloutRef
from services.runtime.claims import ClaimStore
from services.runtime.clients import Clients
from services.runtime.failures import Failures
from services.runtime.offload import Offload
from services.runtime.pool import ProcessPool
from services.runtime.scope import Scope
from services.verifier_worker.step import VerifyStep, VerifyTools

ENVIRONMENT = "instruction_following"
IN_FLIGHT = 256
PARAGRAPH = (
    "The keeper of Skerry Light, Mr. Hale, wrote 3.5 pages a night. Did anyone read them? He doubted it; still, he wrote. "
)
ANSWER = "<<Log>>\n" + PARAGRAPH * 20


def trajectories(count: int) -> list[bytes]:
    """Encoded events, each with an answer of about 2,400 characters."""
    reply = Payload(jsontext.dumps(response(ANSWER)))
    made = enumerate(rows(ENVIRONMENT, count))
    values: dict[str, Any] = {"environment": ENVIRONMENT, "agent": "a", "source": Place("prompts", 0, 0), "response": reply}
    return [
        codec.encode(Trajectory(ref=RolloutRef("r", f"t{i}", i, 0), row=Payload(row), admitted_ms=0, finished_ms=0, **values))
        for i, row in made
    ]


async def measure(count: int, *, thread: bool = False) -> dict[str, float]:
    """Lag in milliseconds (p50, p99, most), verifications per second, microseconds of this process's CPU for each."""
    pool, offload = ProcessPool(), Offload("bench")
    with tempfile.TemporaryDirectory() as folder:
        clients = Clients(pool=None if thread else pool, owned=[pool, offload])
        await clients.start()
        try:
            step = _step(clients, offload, folder)
            await _all(step, trajectories(IN_FLIGHT))  # processes, models and imports
            events, lag = trajectories(count), Lag()
            watcher = asyncio.create_task(lag.watch())
            start = usage.now()
            await _all(step, events)
            spent = usage.now().since(start)
            watcher.cancel()
        finally:
            await clients.close()
    late = {name: round(lag.quantile(q) * 1000, 1) for name, q in (("p50_ms", 0.5), ("p99_ms", 0.99), ("most_ms", 1.0))}
    return {**late, "per_s": round(count / spent.wall), "cpu_us": round(spent.cpu / count * 1e6)}


def _step(clients: Clients, offload: Offload, folder: str) -> VerifyStep:
    control: Any = SimpleNamespace(is_cancelled=lambda _: False)
    failures = Failures("failures", "verifier", FailureClass.VERIFIER)
    claims = ClaimStore(folder)
    return VerifyStep(
        VerifyTools("scored", Registry.load(), failures, claims, control, offload, clients, Scope(""), timeout_s=60.0)
    )


async def _all(step: VerifyStep, events: list[bytes]) -> None:
    """Every event through the step, as many at once as a worker has in flight."""
    left = iter(enumerate(events))

    async def work() -> None:
        for i, event in left:
            (out,) = await step(aiokafka.ConsumerRecord("t", 0, i, 0, 0, b"k", event, None, 0, 0, ()))
            assert out.topic == "scored", out

    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))


if __name__ == "__main__":
    print(json.dumps(uvloop.run(measure(int(sys.argv[1]), thread="thread" in sys.argv[2:]))))
