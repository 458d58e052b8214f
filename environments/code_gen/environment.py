"""Competitive programming in Python: 1.0 for a program that passes all hidden tests, else 0.0."""

from __future__ import annotations

from typing import Any

import structlog
from pydantic import BaseModel, Field

from environments.code_gen.checker import Checking, HiddenTests, Report, check
from environments.code_gen.extraction import breaks_format, last_block
from environments.common.limit import Limit
from environments.environment import Config, Context, Environment, Response, Reverify, Scores, Task, Verdict
from schemas.errors import DataError

log = structlog.get_logger()


_HEADLINE = (
    "mean/*_tokens",
    "pass@{k}/accuracy",
    "pass@1[avg-of-{k}]/accuracy",
    "majority@{k}/accuracy",
    "{subset}/pass@1[avg-of-{k}]/accuracy",
)


class UnitTests(BaseModel):
    """Hidden tests, paired in order. `fn_name` null: each input is a whole stdin and each output a whole stdout."""

    inputs: list[str]
    outputs: list[str]
    fn_name: str | None = None


class Hidden(BaseModel):
    """What the policy does not see. `difficulty` (`easy`, `medium`, `hard`) is echoed and splits the metrics."""

    unit_tests: UnitTests | None = None
    difficulty: str | None = None


class CodeGenTask(Task):
    """A problem whose statement is the prompt; the tests are needed as soon as the policy answers anything."""

    verifier_metadata: Hidden | None = None


class CodeGenConfig(Config):
    """`num_processes`: checks at once; `unit_test_timeout_secs`: whole seconds for each test; `debug`: log every check.

    `memory_mib` bounds the program. `plain_values`: values of foreign types that a function returns are compared as the JSON
    they stand for; the reference believes what such a value says of itself.
    """

    num_processes: int = Field(8, ge=1)
    unit_test_timeout_secs: int = Field(10, ge=1)
    reasoning_format_penalty: float = 0.0
    debug: bool = False
    memory_mib: int = Field(4096, ge=64)
    plain_values: bool = False


class CodeGen(Environment):
    """Runs the last fenced block of the answer in the sandbox."""

    Task = CodeGenTask
    Config = CodeGenConfig
    reverify = Reverify.STATELESS
    metrics = Scores(answer="extracted_model_code", subset="difficulty", sample_std_dev=True, headline=_HEADLINE)

    def __init__(self, config: CodeGenConfig | None = None) -> None:
        super().__init__(config)
        self._limit = Limit(self.config.num_processes)

    async def verify(self, task: CodeGenTask, response: Response, state: Any, context: Context) -> Verdict:
        text = response.flat_text()
        if not text.strip():
            return _verdict(0.0)
        tests = _tests(task)
        code = last_block(text)
        if code is None:
            return _verdict(0.0, extracted_model_output=text)
        async with self._limit:
            report = await check(context.sandbox, code, tests, self._checking())
        if self.config.debug:
            log.info("code checked", rollout=context.rollout_id, result=report.result, wall_s=round(report.wall_s, 3))
        broken = breaks_format(text, response)
        reward = self.config.reasoning_format_penalty if broken else float(report.passed)
        return _verdict(
            reward,
            extracted_model_output=text,
            extracted_model_code=code,
            reasoning_format_violation_rate=float(broken),
            difficulty=task.verifier_metadata.difficulty if task.verifier_metadata else None,
            **_outcome(report),
        )

    def _checking(self) -> Checking:
        config: CodeGenConfig = self.config
        return Checking(config.unit_test_timeout_secs, config.memory_mib << 20, config.plain_values)


def _tests(task: CodeGenTask) -> HiddenTests:
    found = task.verifier_metadata.unit_tests if task.verifier_metadata else None
    if found is None:
        raise DataError("row: verifier_metadata.unit_tests is missing: there is nothing to run the program against")
    return HiddenTests(found.inputs, found.outputs, found.fn_name)


def _outcome(report: Report) -> dict[str, Any]:
    return {"result": list(report.result), "metadata": report.metadata, "unit_tests_time_taken": report.wall_s}


def _verdict(reward: float, **fields: Any) -> Verdict:
    """A verdict with every field of the result, null where nothing was found out."""
    nothing = {
        "extracted_model_output": None,
        "extracted_model_code": None,
        "result": None,
        "metadata": None,
        "unit_tests_time_taken": None,
        "reasoning_format_violation_rate": 0.0,
        "difficulty": None,
    }
    return Verdict(reward, **{**nothing, **fields})
