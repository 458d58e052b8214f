"""A worker with one small stage, for tests of the consuming core: what comes in goes out as it is, after a random delay.

Reads `turns`, writes `trajectories`. As a program (`python -m support.core_member CONFIG-AS-JSON`) it prints `ready` when
its partitions are open and drains at SIGTERM; everything else about it is up to the signals that a test sends.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from schemas.topics import TRAJECTORIES, TURNS, Topics
from services.runtime.connection import Connection
from services.runtime.record import ConsumerRecord, Outgoing, Outputs
from services.runtime.stage import Stage, StageSettings
from services.runtime.worker import Pipeline, Worker

STAGE = "copy"


@dataclass(frozen=True)
class MemberConfig:
    """`delays_s`: one of them, drawn with `seed`, is the time that a record takes; 0 answers without a task."""

    bootstrap: str
    prefix: str
    partitions: int
    delivery: str = "exactly_once"
    concurrency: int = 200
    delays_s: tuple[float, ...] = (0.0, 0.0, 0.001, 0.01, 0.1)
    seed: int = 0
    session_timeout_s: float = 6.0

    @property
    def topics(self) -> Topics:
        return Topics(self.prefix, self.partitions)

    @property
    def source(self) -> str:
        return self.topics.name(TURNS)

    @property
    def target(self) -> str:
        return self.topics.name(TRAJECTORIES)

    def argument(self) -> str:
        return json.dumps(asdict(self))


def copying(config: MemberConfig) -> Callable[[ConsumerRecord], Outputs | Awaitable[Outputs]]:
    """The identity, out of order."""
    rng = random.Random(config.seed)

    def copy(record: ConsumerRecord) -> Outputs | Awaitable[Outputs]:
        out = [Outgoing(config.target, record.key, record.value or b"", record.headers)]
        delay_s = rng.choice(config.delays_s)
        return later(out, delay_s) if delay_s else out

    async def later(out: Outputs, delay_s: float) -> Outputs:
        await asyncio.sleep(delay_s)
        return out

    return copy


def member(config: MemberConfig, step: Any = None) -> Worker:
    """The worker. `step` replaces the identity."""
    partitions: Mapping[str, int] = {config.source: config.partitions, config.target: config.partitions}
    pipeline = Pipeline(
        Connection(config.bootstrap),
        config.topics,
        partitions,
        delivery=config.delivery,  # type: ignore[arg-type]
        session_timeout_s=config.session_timeout_s,
    )
    worker = Worker(STAGE, pipeline)
    bounds = StageSettings(STAGE, config.concurrency, 120.0)
    worker.add_stage(
        lambda deliveries: Stage(bounds, step or copying(config), _no_failures, deliveries, on_fatal=worker.fail),
        [config.source],
    )
    return worker


def _no_failures(record: ConsumerRecord, error: Exception) -> Outputs:
    raise AssertionError(f"offset {record.offset} failed: {error!r}")


async def _main(config: MemberConfig) -> None:
    worker = member(config)
    await worker.start()
    while not worker.ready:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.01)
    print("ready", flush=True)  # noqa: T201 - what the test waits for
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    await worker.stop(10)


if __name__ == "__main__":
    asyncio.run(_main(MemberConfig(**json.loads(sys.argv[1]))))
