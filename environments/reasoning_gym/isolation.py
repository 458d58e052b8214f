"""Where an answer is scored: in the sandbox when its text could run or grow without bound, else in the process pool.

Invariant: a score takes bounded time and memory; what is killed for them scores 0 and says so.
"""

from __future__ import annotations

import json
import secrets
import signal
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from environments.common.extras import require
from environments.context import PYTHON, Context, Limits, SandboxResult
from environments.reasoning_gym.scorer import MAX_SHOWN, score
from schemas.errors import InfrastructureError, RolloutTimeout

SANDBOXED = frozenset(
    {
        "bitwise_arithmetic",
        "coin_flip",
        "countdown",
        "intermediate_integration",
        "polynomial_multiplication",
        "puzzle24",
        "simple_integration",
    }
)
"""Tasks whose scorer evaluates text: the answer, by sympy's parser; or an expression of the row (bitwise_arithmetic). coin_flip
reads fractions, of which `1e999999999` fills the memory."""

POOL_S = 120.0
"""Of a score in the pool. The first one of a task in a process imports its part of the library: up to some seconds of CPU,
more on a busy machine. Known scorers take milliseconds; the bound is for answers that make one of them quadratic."""

START_CPU_S = 60.0
"""What the sandbox gives a scorer beyond its own CPU seconds: importing sympy takes one second, or five on a busy machine."""

START_WALL_S = 120.0
WALL_PER_CPU = 6
"""How much longer than its CPU seconds a score may take, and its start beside that. An endless one ends by its CPU seconds."""


async def score_answer(
    name: str, answer: str, entry: Mapping[str, Any], context: Context, *, cpu_s: int, memory: int, tuples: bool
) -> tuple[float, str | None]:
    """The score, and why it is 0 if for another reason than the answer's worth."""
    require("reasoning_gym", "reasoning_gym")
    if name in SANDBOXED:
        limits = Limits(wall_s=START_WALL_S + WALL_PER_CPU * cpu_s, cpu_s=START_CPU_S + cpu_s, memory=memory)
        return await _in_sandbox(name, {"answer": answer, "entry": entry, "cpu_s": cpu_s}, context, limits)
    try:
        return await context.compute(_score, name, answer, dict(entry), tuples, timeout_s=POOL_S)
    except RolloutTimeout:
        return 0.0, f"the scorer was stopped after {POOL_S:g} s"


async def _in_sandbox(name: str, order: Mapping[str, Any], context: Context, limits: Limits) -> tuple[float, str | None]:
    mark = secrets.token_hex(16)
    asked = json.dumps({**order, "mark": mark, "name": name}).encode()
    command = [PYTHON, "-W", "ignore", "main.py"]
    result = await context.sandbox.run(command, files={"main.py": _program()}, stdin=asked, limits=limits)
    found = _report(result, mark)
    if found is not None:
        return float(found["score"]), found["error"]
    said = result.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    limit = result.limit or _limit_of(result.returncode, said)
    if not limit:
        raise InfrastructureError(f"the scorer of {name} ended with {result.returncode} and no score: {said[:MAX_SHOWN]}")
    return 0.0, f"the scorer was stopped by its limit of {limit}"


def _limit_of(returncode: int, said: str) -> str:
    """The limit that ended a program which kept it itself."""
    if returncode in {-signal.SIGXCPU, 128 + signal.SIGXCPU}:
        return "cpu"
    return "memory" if said.startswith("MemoryError") else ""


def _report(result: SandboxResult, mark: str) -> Mapping[str, Any] | None:
    for line in reversed(result.stdout.split(b"\n")):
        if line.startswith(mark.encode()):
            found: Mapping[str, Any] = json.loads(line[len(mark) :])
            return found
    return None


def _score(name: str, answer: str, entry: Mapping[str, Any], tuples: bool) -> tuple[float, str | None]:
    return score(name, answer, entry, tuples=tuples)


@cache
def _program() -> bytes:
    return Path(__file__).with_name("scorer.py").read_bytes()
