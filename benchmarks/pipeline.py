"""The whole pipeline in one process, over prompts that are already on the log.

`python -m benchmarks.pipeline ENVIRONMENT COUNT CONCURRENCY MODEL_URL OUTPUT BOOTSTRAP PREFIX DELIVERY` prints its
figures as one JSON line: CPU of this process from the moment at which the workers downstream of admission are ready to the
last line in the file. (The bare loop is measured after a warm-up, too.)
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

import psutil
import uvloop

from benchmarks import usage
from environments.registry import Registry
from rollstream.runner.assembly import (
    Parts,
    agent_worker,
    endpoints_of,
    pipeline_of,
    sink_worker,
    tool_worker,
    topics_of,
    verifier_worker,
)
from rollstream.runner.watch import Watch
from rollstream.settings import load
from services.runtime import collector
from services.runtime.admin import ensure_topics
from services.runtime.claims import ClaimStore
from services.runtime.connection import Connection
from services.sink.line_files import Mode
from services.sink.single_file import SingleFile

PARTITIONS = 2


class Lag:
    """How late the event loop runs a timer, every 5 ms."""

    def __init__(self) -> None:
        self.late: list[float] = []

    async def watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + 0.005
            await asyncio.sleep(0.005)
            self.late.append(loop.time() - due)

    def quantile(self, q: float) -> float:
        return sorted(self.late)[min(len(self.late) - 1, int(len(self.late) * q))] if self.late else 0.0


async def main(count: int, concurrency: int, url: str, output: Path, bootstrap: str, prefix: str, delivery: str) -> None:
    flags = {
        "delivery": delivery,
        "topics.prefix": prefix,
        "topics.partitions": PARTITIONS,
        "agent.in_flight": concurrency,
        "model.concurrency": concurrency,
        "admission.high_water": 4 * concurrency + 1000,
        "admission.low_water": 2 * concurrency,
    }
    settings = load(flags).settings
    connection = Connection(bootstrap)
    watch = Watch(expected=count)
    with tempfile.TemporaryDirectory() as claims:
        ready = await ensure_topics(connection, topics_of(settings))
        pipeline = pipeline_of(settings, connection, ready.partitions)
        parts = Parts(settings, pipeline, Registry.load(), ClaimStore(claims), endpoints_of(settings, url))
        sink = SingleFile(output, run_id="default", mode=Mode.FRESH)
        workers = [
            agent_worker(parts),
            tool_worker(parts),
            verifier_worker(parts),
            sink_worker(parts, lambda *_: sink, watch.observe),
        ]
        collector.settle()
        process = psutil.Process()
        lag = Lag()
        watcher = asyncio.create_task(lag.watch())
        first, *others = workers
        await asyncio.gather(*(w.start() for w in others))
        while not all(w.ready for w in others):  # noqa: ASYNC110 - readiness is a property of several objects
            await asyncio.sleep(0.01)
        start = usage.now()
        await first.start()
        most, peak = count * 99 // 100, 0
        ended_99 = None
        end = time.monotonic() + 600
        while not watch.complete and time.monotonic() < end:
            await asyncio.sleep(0.1)  # reading the size of the process is CPU of ours, not of the workers
            peak = max(peak, process.memory_info().rss)
            if ended_99 is None and watch.ended >= most:
                ended_99 = usage.now().since(start).wall
        spent = usage.now().since(start)
        watcher.cancel()
        figures = {
            "cpu_us": spent.cpu / count * 1e6,
            "wall_s": spent.wall,
            "per_s": count / spent.wall,
            "ended": watch.ended,
            "failures": dict(watch.failures),
            "loop_lag_p99_ms": lag.quantile(0.99) * 1000,
            "ended_99_s": ended_99 or spent.wall,
            "rss_peak_mib": peak / 2**20,
            "commits": {s.settings.name: s.counters.commits for w in workers for s in w.stages},
        }
        await asyncio.gather(*(w.stop(5) for w in workers))
    print(json.dumps(figures))


if __name__ == "__main__":
    _, count, concurrency, url, output, bootstrap, prefix, delivery = sys.argv[1:]
    uvloop.run(main(int(count), int(concurrency), url, Path(output), bootstrap, prefix, delivery))
