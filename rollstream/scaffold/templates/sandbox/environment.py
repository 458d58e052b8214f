"""A program in the reply runs against cases. Invariant: it runs in the sandbox and nowhere else, under limits."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from environments.context import PYTHON, Limits
from environments.environment import Context, Environment, Response, Reverify, Task, Verdict

LIMITS = Limits(wall_s=10.0, cpu_s=5.0, memory=512 << 20, processes=8, output=64 << 10)
FENCE = "```"


class Case(BaseModel):
    """One run: standard input, and what must be printed (blanks at the end of lines and of the output aside)."""

    stdin: str = ""
    stdout: str


class ProgramTask(Task):
    """`cases`: all of them must pass."""

    cases: list[Case]


class MyEnvironment(Environment):
    """Rewards a program that passes all cases with 1.0, any other reply with 0.0."""

    Task = ProgramTask
    reverify = Reverify.STATELESS

    async def verify(self, task: ProgramTask, response: Response, state: Any, context: Context) -> Verdict:
        program = last_block(response.flat_text())
        if program is None:
            return Verdict(0.0, passed=0, error="no code block")
        for number, case in enumerate(task.cases):
            error = await self._run(program, case, context)
            if error:
                return Verdict(0.0, passed=number, error=error)
        return Verdict(1.0, passed=len(task.cases), error=None)

    async def _run(self, program: str, case: Case, context: Context) -> str | None:
        """Why the program fails the case; None when it passes."""
        files = {"main.py": program.encode("utf-8", "replace")}
        result = await context.sandbox.run([PYTHON, "main.py"], files=files, stdin=case.stdin.encode(), limits=LIMITS)
        if result.limit:
            return f"limit: {result.limit}"
        if result.returncode:
            return f"exit status {result.returncode}"
        return None if lines(result.stdout.decode("utf-8", "replace")) == lines(case.stdout) else "wrong output"


def last_block(text: str) -> str | None:
    """The code in the last fenced block; None when there is none. The time is linear in the length of `text`."""
    parts = text.split(FENCE)  # every second part is inside a block, the last one only if the block is never closed
    inside = (len(parts) - 1) // 2 * 2 - 1
    return parts[inside].partition("\n")[2] if inside > 0 else None


def lines(text: str) -> list[str]:
    """Printed text as it is compared."""
    return [line.rstrip() for line in text.rstrip().splitlines()]
