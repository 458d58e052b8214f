"""One step of an expert trajectory: 1.0 (or a share, for several calls) when the policy does what the expert did."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from environments.environment import Config, Context, Environment, Response, Reverify, Task, Verdict
from environments.single_step_tool_use_with_argument_comparison.categories import Category
from environments.single_step_tool_use_with_argument_comparison.comparing import Call, ExpectationError
from environments.single_step_tool_use_with_argument_comparison.scoring import ComparatorConfig, Score, score_calls


class ExpectedMessage(BaseModel):
    """The expert answered with text; what it says is not compared."""

    type: Literal["message"]
    content: str


class ExpectedCall(BaseModel):
    """The expert called a tool; `arguments` is the JSON text of an object."""

    type: Literal["function_call"]
    name: str
    arguments: str


class ExpectedBatch(BaseModel):
    """The expert called several tools at once; their order is irrelevant."""

    type: Literal["function_call_batch"]
    calls: list[ExpectedCall] = Field(min_length=1)


Expected = Annotated[ExpectedMessage | ExpectedCall | ExpectedBatch, Field(discriminator="type")]


class SingleStepTask(Task):
    """The conversation so far, and what the expert did next."""

    expected_action: Expected


class SingleStepConfig(Config):
    """How the action is compared."""

    tool_call_comparator_config: ComparatorConfig


class SingleStepToolUseWithArgumentComparison(Environment):
    """Rewards the expert's next action; nothing is executed."""

    Task = SingleStepTask
    Config = SingleStepConfig
    reverify = Reverify.STATELESS

    def verify(self, task: SingleStepTask, response: Response, state: Any, context: Context) -> Verdict:
        calls = [Call(_text(item.get("name")), _text(item.get("arguments"))) for item in response.function_calls()]
        try:
            score = self._score(task.expected_action, calls, said=bool(response.output_texts()))
        except ExpectationError as e:
            return Verdict(0.0, category=None, error=str(e))
        return Verdict(score.reward, category=score.category.value)

    def _score(self, expected: Expected, calls: list[Call], *, said: bool) -> Score:
        if not calls and not said:
            return Score(0.0, Category.NONE_FOUND)
        if isinstance(expected, ExpectedMessage):
            return Score(0.0, Category.NO_MESSAGE) if calls else Score(1.0, Category.MESSAGE)
        if not calls:
            return Score(0.0, Category.NO_CALL)
        wanted = expected.calls if isinstance(expected, ExpectedBatch) else [expected]
        config: ComparatorConfig = self.config.tool_call_comparator_config
        return score_calls([Call(c.name, c.arguments) for c in wanted], calls, config)


def _text(value: Any) -> str | None:
    """What is no text fits nothing: a broken engine's call is scored, not a crash."""
    return value if isinstance(value, str) else None
