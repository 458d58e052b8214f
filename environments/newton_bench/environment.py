"""Discovery of altered physical laws: experiments, a Python tool, a submitted function, scored by numbers and by a judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from environments.common.judging import Judge, JudgeConfig, JudgeReply
from environments.common.python_session import PACKAGES, Killed, PythonState, PythonTool, Rules
from environments.common.template import Template
from environments.environment import Context, Environment, Response, Reverify, Seed, Task, Verdict
from environments.newton_bench import rules
from environments.newton_bench.laws import Law, law_of
from environments.newton_bench.measuring import Hidden, Measured, measure
from environments.newton_bench.modules import MODULES
from environments.newton_bench.reading import equivalent, fault, submitted
from environments.newton_bench.tools import experiment_tools
from environments.tools import tool
from schemas.errors import DataError, JudgeError

_HERE = Path(__file__).parent

TRIES = 3
"""Calls of the judge, until one can be read."""


class NewtonTask(Task):
    """Which law is hidden, what the apparatus is (`system`) and how noisy it is (relative standard deviation)."""

    module_name: str
    difficulty: str
    system: str
    noise_level: float
    law_version: str


class NewtonConfig(JudgeConfig):
    """`max_execution_time`: seconds of one Python call; `submission_time`: of the 5,000 calls of a submitted law.

    `strict_numbers`: a law that cannot be run counts as the worst possible, and so does one that leaves points out.
    `session_ttl` is the reference's; here the setting `sessions.idle_s` of the worker holds.
    """

    max_execution_time: int = Field(default=60, ge=1, le=3_600)
    session_ttl: int = 1_800
    submission_time: float = Field(default=60.0, gt=0, le=3_600)
    strict_numbers: bool = False
    judge_prompt_template_fpath: str = "prompts/equivalence.txt"

    @model_validator(mode="before")
    @classmethod
    def _temperature(cls, values: Any) -> Any:
        return {"judge_responses_create_params": {"temperature": 0.6}, **values} if isinstance(values, dict) else values


class NewtonBench(Environment):
    """Rewards a law that is numerically close to the hidden one and equivalent to it."""

    Task = NewtonTask
    State = PythonState
    Config = NewtonConfig
    reverify = Reverify.STATELESS

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.tools |= experiment_tools()
        self.judge = Judge(self.config)
        places = ("quantity", "parameters", "formula", "code")
        self.template = Template.load(self.config.judge_prompt_template_fpath, base=_HERE, places=places)
        interpreter = Rules(
            rules.BUILTINS,
            float(self.config.max_execution_time),
            {**PACKAGES, "math": "math"},
            tracebacks=True,
            refused=rules.REFUSED,
        )
        killed = Killed("Execution timed out (worker unresponsive)", forgets=True)
        self._python = PythonTool(interpreter, killed, "newton_bench")

    def seed(self, task: NewtonTask, context: Context) -> Seed:
        _module_of(task)
        return Seed(PythonState())

    @tool
    async def execute_python(self, code: str, state: PythonState, context: Context) -> dict[str, Any]:
        """Run Python code. Variables are kept from call to call; numpy, scipy, pandas and math are at hand."""
        return await self._python.execute(code, state, context)

    @tool
    async def end_session(self, state: PythonState, context: Context) -> dict[str, Any]:
        """Forget all variables."""
        await self._python.end(state, context)
        return {"success": True}

    async def close(self, task: NewtonTask, state: PythonState, context: Context) -> None:
        await context.sessions.close(context.rollout_id)

    async def verify(self, task: NewtonTask, response: Response, state: PythonState, context: Context) -> Verdict:
        module = _module_of(task)
        code = submitted(response)
        if code is None:
            return _verdict(task, 0.0, None, error="no answer between <final_law> and </final_law>")
        wrong = fault(code, module)
        if wrong is not None:
            return _verdict(task, -0.3, code, symbolic=False, error=wrong)
        try:
            law = law_of(module, task.difficulty, task.law_version)
        except ValueError as error:
            return _verdict(task, 0.0, code, error=str(error))
        hidden = Hidden(module, task.difficulty, task.law_version)
        measured = await measure(code, hidden, context.rng.getrandbits(32), self.config.submission_time, context)
        same = await self._judged(law, code, context)
        strict = self.config.strict_numbers
        return _verdict(task, reward(measured, same, strict=strict), code, measured.rmsle, same, measured.error)

    async def _judged(self, law: Law, code: str, context: Context) -> bool:
        """Whether the judge finds the laws equivalent; no, when it cannot be read, or (as configured) not be reached."""
        failed: JudgeError | None = None
        for _ in range(TRIES):
            try:
                reply = await self.judge.ask(context, self._prompt(law, code, context))
            except JudgeError as error:
                failed = error
                continue
            found = equivalent(_text(reply))
            if found is not None:
                return found
        if failed is not None and self.config.on_judge_failure == "fail":
            raise failed
        return False

    def _prompt(self, law: Law, code: str, context: Context) -> str:
        meanings = "\n".join(f"- {name}: {meaning}" for name, meaning in law.module.parameters.items())
        values = {"quantity": law.module.quantity, "parameters": meanings, "formula": law.expression, "code": code}
        return self.judge.prompt(context, self.template, values, candidate=("code",), labels=("ANSWER",))


def reward(measured: Measured, same: bool, *, strict: bool = False) -> float:
    """0.3 for the judge's word and 0.7 for the numbers, each between -1 and 1 (newton_bench.md, "Scoring" 5)."""
    word = 0.3 if same else -0.3
    if strict and (measured.rmsle is None or measured.gaps):
        return word - 0.7
    if measured.rmsle is None:
        return 1.0 if same else -0.3
    return word + 0.7 * (1 - 2 * measured.rmsle / (measured.rmsle + 3))


def _module_of(task: NewtonTask) -> str:
    if task.module_name not in MODULES:
        raise DataError(f"row: module_name: there is no module {task.module_name!r} (there are: {', '.join(MODULES)})")
    return task.module_name


def _text(reply: JudgeReply) -> str | None:
    return reply.all_messages


def _verdict(
    task: NewtonTask,
    value: float,
    code: str | None,
    rmsle: float | None = None,
    symbolic: bool | None = None,
    error: str | None = None,
) -> Verdict:
    return Verdict(
        value,
        difficulty=task.difficulty,
        system=task.system,
        noise_level=task.noise_level,
        law_version=task.law_version,
        extracted_law=code,
        rmsle=rmsle,
        exact_accuracy=None if symbolic is None else float(symbolic),
        symbolic_equivalent=symbolic,
        evaluation_error=error,
    )
