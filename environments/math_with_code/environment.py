"""Competition maths: the policy may compute in a Python session and boxes its answer."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from environments.common.python_session import PACKAGES, Killed, PythonState, PythonTool, Rules
from environments.environment import Config, Context, Environment, Response, Reverify, Task, Verdict
from environments.math_with_code.answers import agree, extract
from environments.tools import tool

BUILTINS = (
    "print", "len", "str", "int", "float", "list", "dict", "tuple", "set", "min", "max", "sum", "abs", "range", "enumerate",
    "zip",
)  # fmt: skip


class MathTask(Task):
    """`expected_result`: the answer, in LaTeX or not. `expected_code_contains` is carried along and never looked at."""

    expected_result: str
    expected_code_contains: str = ""


class MathConfig(Config):
    """`max_execution_time`: seconds of one tool call. `tool_output_counts`: a box that only the tool printed is an answer."""

    max_execution_time: int = Field(default=10, ge=1, le=3_600)
    tool_output_counts: bool = True


class MathWithCode(Environment):
    """Rewards the expected answer in the last box with 1.0."""

    Task = MathTask
    State = PythonState
    Config = MathConfig
    reverify = Reverify.STATELESS

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        rules = Rules(BUILTINS, float(self.config.max_execution_time), PACKAGES)
        self._python = PythonTool(rules, Killed("code timed-out", forgets=False), "math_with_code")

    @tool
    async def execute_python(self, code: str, state: PythonState, context: Context) -> dict[str, Any]:
        """Run Python code. Variables are kept from call to call; numpy, scipy and pandas are at hand."""
        return await self._python.execute(code, state, context)

    @tool
    async def end_session(self, state: PythonState, context: Context) -> dict[str, Any]:
        """Forget all variables."""
        await self._python.end(state, context)
        return {"success": True}

    async def close(self, task: MathTask, state: PythonState, context: Context) -> None:
        await context.sessions.close(context.rollout_id)

    def verify(self, task: MathTask, response: Response, state: PythonState, context: Context) -> Verdict:
        answer = extract(response if self.config.tool_output_counts else _messages_alone(response))
        right = answer is not None and agree(answer, task.expected_result)
        return Verdict(float(right), extracted_answer=answer, accuracy=right)


def _messages_alone(response: Response) -> Response:
    return Response({"output": [i for i in response.output if i.get("type") != "function_call_output"]})
