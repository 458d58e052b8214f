"""`python -m benchmarks [--quick] [PART …]`: every figure of docs/performance.md, in one run.

Parts: `single` (CPU per single-turn rollout against the bare loop, exactly once and at least once), `tool` (one tool call),
`flight` (16,000 rollouts in flight at a model that takes 20 s), `stragglers` (1 % of rollouts 100 times slower),
`heavy` (event-loop lag while answers that take milliseconds to check are verified at full speed, in processes and in a thread).
Ratios are printed, and everything as JSON at the end. The bare loop, the model and the pipeline are processes of their own;
what is compared is the CPU of the process under test.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.rows import rows
from rollstream.broker import LocalBroker
from rollstream.producer import PromptProducer
from schemas.identity import DEFAULT_RUN
from schemas.topics import Topics
from services.runtime.admin import ensure_topics
from services.runtime.connection import Connection

PARTITIONS = 2
LIMIT_S = 600.0
"""No part may take longer."""

TARGETS = {"exactly_once": 2.5, "at_least_once": 2.0, "tool": 4.0}


class Bench:
    """One run of all parts on one broker."""

    def __init__(self, connection: Connection, folder: Path, scale: float) -> None:
        self.connection = connection
        self.folder = folder
        self.scale = scale
        self.figures: dict[str, Any] = {}
        self._made = 0

    def count(self, full: int) -> int:
        return max(200, int(full * self.scale))

    async def single(self) -> None:
        """CPU per single-turn mcqa rollout."""
        await self.compare("single", "mcqa", self.count(20_000), ("exactly_once", "at_least_once"))

    async def tool(self) -> None:
        """CPU per rollout with one tool call (two model calls), against the loop's single call."""
        count = self.count(5_000)
        async with scripted() as url:
            base = await self.bare("mcqa", count, 256, url)
            found = await self.pipeline("example_single_tool_call", count, 256, url, "exactly_once")
        self.report("tool", found, base, TARGETS["tool"])

    async def flight(self) -> None:
        """Many rollouts waiting at the model in one process: memory and event-loop lag."""
        count = self.count(16_000)
        async with scripted("--latency", "20") as url:
            found = await self.pipeline("mcqa", count, count, url, "exactly_once")
        self.figures["flight"] = found
        print(
            f"flight: {count:,} in flight, peak {found['rss_peak_mib']:.0f} MiB resident, {found['wall_s']:.1f} s, "
            f"loop lag p99 {found['loop_lag_p99_ms']:.0f} ms (targets: < 1,024 MiB, < 50 ms)"
        )

    async def stragglers(self) -> None:
        """The other 99 % beside 1 % of rollouts that are 100 times slower."""
        count = self.count(4_000)
        times = {}
        for name, options in {"without": (), "with": ("--slow-fraction", "0.01", "--slow-factor", "100")}.items():
            async with scripted("--latency", "0.1", *options) as url:
                found = await self.pipeline("mcqa", count, 128, url, "exactly_once")
            times[name] = found["ended_99_s"]
            self.figures[f"stragglers_{name}"] = found
        ratio = times["with"] / times["without"]
        both = f"{times['with']:.2f} s beside them, {times['without']:.2f} s without"
        print(f"stragglers: 99 % ended in {both}: {ratio:.3f} × (target ≤ 1.05)")

    async def heavy(self) -> None:
        """The verifier's step on `instruction_following`, without Kafka."""
        for name, options in {"processes": (), "a thread": ("thread",)}.items():
            found = await process("benchmarks.heavy", self.count(5_000), *options)
            self.figures[f"heavy in {name}"] = found
            print(
                f"heavy in {name}: {found['per_s']} verifications/s, {found['cpu_us']} µs of the worker's CPU each, "
                f"loop lag p99 {found['p99_ms']:.0f} ms, at most {found['most_ms']:.0f} ms (target: p99 < 50 ms)"
            )

    async def compare(self, name: str, environment: str, count: int, deliveries: tuple[str, ...]) -> None:
        async with scripted() as url:
            base = await self.bare(environment, count, 256, url)
            for delivery in deliveries:
                found = await self.pipeline(environment, count, 256, url, delivery)
                self.report(f"{name} {delivery}", found, base, TARGETS[delivery])

    def report(self, name: str, found: dict[str, Any], base: dict[str, Any], target: float) -> None:
        ratio = found["cpu_us"] / base["cpu_us"]
        self.figures[name] = {"bare": base, "pipeline": found, "ratio": ratio}
        cpu = f"{found['cpu_us']:.0f} µs CPU a rollout, bare loop {base['cpu_us']:.0f}: {ratio:.2f} × (target ≤ {target:g})"
        print(f"{name}: {cpu}; {found['per_s']:.0f} rollouts/s, loop lag p99 {found['loop_lag_p99_ms']:.0f} ms")

    async def bare(self, environment: str, count: int, concurrency: int, url: str) -> dict[str, Any]:
        return await process("benchmarks.bare_loop", environment, count, concurrency, url, self.folder / "bare.jsonl")

    async def pipeline(self, environment: str, count: int, concurrency: int, url: str, delivery: str) -> dict[str, Any]:
        self._made += 1
        topics = Topics(f"bench{int(time.time())}.{self._made}", PARTITIONS)
        await ensure_topics(self.connection, topics)
        async with PromptProducer(self.connection, topics, form="avro") as producer:
            for i, row in enumerate(rows(environment, count)):
                await producer.send(row, run_id=DEFAULT_RUN, task_id=f"t{i}", task_index=i)
        output = self.folder / f"{self._made}.jsonl"
        arguments = (environment, count, concurrency, url, output, self.connection.bootstrap_servers, topics.prefix, delivery)
        found = await process("benchmarks.pipeline", *arguments)
        if found["ended"] != count or found["failures"]:
            raise SystemExit(f"{found['ended']} of {count} rollouts ended; failures: {found['failures']}")
        return found


async def process(module: str, *arguments: object) -> dict[str, Any]:
    """Run a module; the JSON on the last line it prints."""
    line = [sys.executable, "-m", module, *map(str, arguments)]
    child = await asyncio.create_subprocess_exec(*line, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL)
    try:
        out, _ = await asyncio.wait_for(child.communicate(), LIMIT_S)
    except TimeoutError as e:
        child.kill()
        raise SystemExit(f"{module} took longer than {LIMIT_S:g} s") from e
    if child.returncode:
        raise SystemExit(f"{module} ended with {child.returncode}")
    return json.loads(out.splitlines()[-1])


@asynccontextmanager
async def scripted(*options: str) -> AsyncIterator[str]:
    """The scripted model in a process of its own; its base URL."""
    line = [sys.executable, "-m", "rollstream.scripted", "--port", "0", "--with-parent", *options]
    child = await asyncio.create_subprocess_exec(*line, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    try:
        yield json.loads(await asyncio.wait_for(child.stdout.readline(), 30))["base_url"]
    finally:
        child.terminate()
        await child.wait()


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n\n")[1])
    parser.add_argument("parts", nargs="*", default=["single", "tool", "flight", "stragglers", "heavy"])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rollouts: a look, not a measurement")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rollstream-bench-") as folder:
        async with LocalBroker(Path(folder) / "broker") as connection:
            bench = Bench(connection, Path(folder), 0.1 if chosen.quick else 1.0)
            for part in chosen.parts:
                await getattr(bench, part)()
    print(json.dumps(bench.figures))


if __name__ == "__main__":
    asyncio.run(main())
