"""An environment that misbehaves as its row says, for tests of what that costs the others."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from environments.context import Context
from environments.environment import Environment, Move, Response, Seed, State, Task, Verdict
from environments.tools import Text, tool
from schemas.errors import DataError


class FaultyTask(Task):
    """`seed_does`, `tool_does`, `verify_does`, `move_does`: see `act`; `seconds` and `size` say how long and how much."""

    seed_does: str = "ok"
    tool_does: str = "ok"
    verify_does: str = "ok"
    close_does: str = "ok"
    seconds: float = 0.0
    size: int = 0
    moves: int = 1


class Count(State):
    """Calls and moves so far, and what was handed over."""

    calls: int = 0
    moves: int = 0
    closed: int = 0
    blob: str = ""


CLOSED: list[str] = []
"""Rollouts that were closed in this process, in order."""


def act(how: str, seconds: float = 0.0) -> Any:
    """Do what `how` says: return None, an awaitable, or not at all."""
    match how:
        case "raise":
            raise ValueError("thrown on purpose")
        case "refuse":
            raise DataError("refused on purpose")
        case "exit":
            sys.exit(3)
        case "cancel":
            raise asyncio.CancelledError
        case "hang":
            return asyncio.Event().wait()
        case "sleep":
            time.sleep(seconds)
        case "compute":
            _compute(seconds)
        case "forever":
            _compute(float("inf"))
    return None


def _compute(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


class Faulty(Environment):
    """Reward 1.0 when it is not told otherwise."""

    Task = FaultyTask
    State = Count

    async def seed(self, task: FaultyTask, context: Context) -> Seed:
        if (waiting := act(task.seed_does, task.seconds)) is not None:
            await waiting
        return Seed(Count(blob="b" * task.size if task.seed_does == "blob" else ""))

    @tool
    async def poke(self, task: FaultyTask, state: Count) -> Any:
        """Do what the row says."""
        state.calls += 1
        if (waiting := act(task.tool_does, task.seconds)) is not None:
            await waiting
        if task.tool_does == "large":
            return Text("x" * task.size)
        return float("nan") if task.tool_does == "nan" else {"calls": state.calls}

    def respond(self, task: FaultyTask, response: Response, state: Count, context: Context) -> Move:
        state.moves += 1
        if state.moves >= task.moves:
            return Move(done=True)
        heard = len(response.flat_text())
        return Move(({"role": "user", "content": f"heard {heard} characters. {'m' * task.size}"},))

    def close(self, task: FaultyTask, state: Count, context: Context) -> None:
        CLOSED.append(context.rollout_id)
        act(task.close_does)
        state.closed += 1

    async def verify(self, task: FaultyTask, response: Response, state: Count, context: Context) -> Any:
        if (waiting := act(task.verify_does, task.seconds)) is not None:
            await waiting
        return _verdict(task, state)


def _verdict(task: FaultyTask, state: Count) -> Any:
    match task.verify_does:
        case "nan":
            return Verdict(float("nan"))
        case "nan_extra":
            return Verdict(0.5, score=float("nan"), said="half \ud83d")
        case "none":
            return None
        case "odd_extra":
            return Verdict(1.0, found={1, 2})
        case "late_nan":
            verdict = Verdict(1.0)
            verdict.reward = float("nan")
            return verdict
    return Verdict(1.0, calls=state.calls, moves=state.moves)
