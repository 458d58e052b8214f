"""`python -m benchmarks.sandbox [--count N] [--backend NAME]`: what a small Python program costs in the sandbox.

Compared with the same program as a bare subprocess of the same interpreter. Wall: the median from the call to the result, with
a box ready. CPU: of all that starting, running and removing a box takes, the worker's part
included, per program, while programs come without a pause.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time

import psutil

from environments.context import PYTHON
from services.sandbox.options import Options
from services.sandbox.sandbox import SandboxService

SNIPPET = "print(sum(number * number for number in range(1000)))"
ANSWER = b"332833500\n"
TARGETS = {"wall_ms": 30.0, "cpu_ratio": 2.0}
PR_SET_CHILD_SUBREAPER = 36

TURNS = 5

PAUSE_S = 0.15
"""Between the programs whose wall time is taken: time to make another box ready, as a rollout's own work leaves it."""


def bare() -> None:
    """The program as a subprocess, nothing else."""
    done = subprocess.run([sys.executable, "-c", SNIPPET], capture_output=True, check=True)
    assert done.stdout == ANSWER


async def boxed(service: SandboxService) -> float:
    """Seconds from the call to the result."""
    started = time.perf_counter()
    result = await service.run([PYTHON, "-c", SNIPPET])
    assert result.stdout == ANSWER, result
    return time.perf_counter() - started


def adopt() -> None:
    """Make this process the parent of orphans below it: boxes are often killed by their first process, which waits for none."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def cpu_s() -> float:
    """Processor time of this process and of all below it that have ended, orphans included."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    times = psutil.Process().cpu_times()
    return times.user + times.system + times.children_user + times.children_system


async def processor(backend: str, count: int) -> tuple[float, float]:
    """Seconds of processor time for one bare program and one boxed one, in turns, so that the machine's mood meets both."""
    service = SandboxService(Options(backend=backend))  # type: ignore[arg-type]
    await boxed(service)
    await asyncio.sleep(PAUSE_S)
    bare_cpu = cpu = 0.0
    for _ in range(TURNS):
        before = cpu_s()
        for _ in range(count // TURNS):
            bare()
        between = cpu_s()
        for _ in range(count // TURNS):
            await boxed(service)
        await service.settled()
        bare_cpu, cpu = bare_cpu + between - before, cpu + cpu_s() - between
    await service.close()
    runs = TURNS * (count // TURNS)
    return bare_cpu / runs, cpu / runs


async def measure(backend: str, count: int) -> dict[str, float | str]:
    """All figures of one back end."""
    walls, bare_walls = [], []
    adopt()
    service = SandboxService(Options(backend=backend))  # type: ignore[arg-type]
    await boxed(service)
    for _ in range(count):
        await asyncio.sleep(PAUSE_S)
        walls.append(await boxed(service))
        started = time.perf_counter()
        bare()
        bare_walls.append(time.perf_counter() - started)
    used = await service.launcher.backend()
    await asyncio.sleep(PAUSE_S)
    await service.close()
    bare_cpu, cpu = await processor(backend, count)
    return {
        "backend": used.name,
        "wall_ms": round(statistics.median(walls) * 1e3, 1),
        "wall_p90_ms": round(statistics.quantiles(walls, n=10)[8] * 1e3, 1),
        "bare_wall_ms": round(statistics.median(bare_walls) * 1e3, 1),
        "cpu_ms": round(cpu * 1e3, 1),
        "bare_cpu_ms": round(bare_cpu * 1e3, 1),
        "cpu_ratio": round(cpu / bare_cpu, 2),
    }


def main() -> int:
    """Print the figures; 1 when one is past its target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--backend", default="auto")
    options = parser.parse_args()
    figures = asyncio.run(measure(options.backend, options.count))
    print(json.dumps(figures))
    missed = [name for name, target in TARGETS.items() if float(figures[name]) > target]
    print("past the target: " + ", ".join(missed) if missed else "within the targets: " + json.dumps(TARGETS))
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
