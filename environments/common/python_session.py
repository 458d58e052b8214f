"""`execute_python` for environments: one interpreter per rollout, in a live session (math_with_code.md, newton_bench.md).

Owns what of a call travels in the rollout's state: the codes that were executed, from which any worker rebuilds the
interpreter. Invariant: what comes back from the sandbox is data of the expected shape, whatever ran there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from environments.common.extras import require
from environments.common.python_driver import failed
from environments.context import Context, Limits
from environments.environment import State
from schemas.errors import RolloutTimeout, SessionEnded

_SOURCE = Path(__file__).with_name("python_driver.py")

GRACE_S = 5.0
"""Beyond its own limit, after which code that ignores the alarm is killed: what newton_bench.md gives it."""

IMPORTS_S = 10.0
"""For importing numpy, scipy and pandas, which are not on the code's time: 1.5 s alone, more on a busy machine."""

LIMITS = Limits(memory=2 << 30, processes=32, scratch=64 << 20)
"""numpy, scipy and pandas reserve most of a gigabyte of addresses before the first array."""

PACKAGES = {"np": "numpy", "numpy": "numpy", "scipy": "scipy", "pd": "pandas", "pandas": "pandas"}


@dataclass(frozen=True, slots=True)
class Rules:
    """What one environment's interpreter allows and says; the fields are those of `python_driver.Interpreter`.

    `names`: builtins besides the import function. `modules`: bound names and what they stand for. `limit_s`: of one call.
    `output`: characters kept of each text. `refused`: patterns that must not occur; with any, code is parsed beforehand.
    """

    names: Sequence[str]
    limit_s: float
    modules: Mapping[str, str]
    output: int = 200_000
    tracebacks: bool = False
    refused: Sequence[str] = ()

    @property
    def driver(self) -> str:
        """The program of a session with these rules."""
        rules = json.dumps(json.dumps(asdict(self)))
        return f"{_SOURCE.read_text('utf-8')}\n\nimport json\n\nexecute = Interpreter(ROLLOUT, **json.loads({rules})).execute\n"


class PythonState(State):
    """`journal`: the codes that the rollout's interpreter has executed, in order."""

    journal: list[str] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Killed:
    """What a call is answered that had to be killed, and whether the next one begins with an empty interpreter."""

    text: str
    forgets: bool


class PythonTool:
    """The tool of one environment, as configured; `extra` names what installs the modules."""

    def __init__(self, rules: Rules, killed: Killed, extra: str) -> None:
        self._rules = rules
        self._killed = killed
        self._extra = extra
        self._driver = rules.driver
        self._needed = sorted({path for path in rules.modules.values() if path in PACKAGES})

    async def execute(self, code: str, state: PythonState, context: Context) -> dict[str, Any]:
        """The five keys of the answer; raises `InfrastructureError` for what the code has no part in."""
        require(self._extra, *self._needed)
        session = await context.sessions.get(context.rollout_id, self._driver, journal=state.journal, limits=LIMITS)
        try:
            reply = await session.execute(code, timeout_s=self._rules.limit_s + GRACE_S + IMPORTS_S)
        except RolloutTimeout:
            return self._lost(state, self._killed.text)
        except SessionEnded as error:
            return self._lost(state, str(error))
        state.journal.append(code)
        return self._checked(reply)

    async def end(self, state: PythonState, context: Context) -> None:
        """End the interpreter; a further call begins with an empty one."""
        state.journal.clear()
        await context.sessions.close(context.rollout_id)

    def _lost(self, state: PythonState, text: str) -> dict[str, Any]:
        if self._killed.forgets:
            state.journal.clear()
        return failed(text)

    def _checked(self, reply: Mapping[str, Any]) -> dict[str, Any]:
        texts = {name: self._text(reply.get(name)) for name in ("stdout", "stderr", "error_message", "result")}
        known = {"stdout": texts["stdout"] or "", "stderr": texts["stderr"] or ""}
        return {"success": reply.get("success") is True, **texts, **known}

    def _text(self, value: Any) -> str | None:
        return value[: 2 * self._rules.output] if isinstance(value, str) else None
