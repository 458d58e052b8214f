"""A judge decides whether the policy's answer means the same as the gold answer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from environments.common.judging import Judge, JudgeConfig, JudgeReply, both_orders
from environments.common.labels import first_label
from environments.common.template import Template
from environments.environment import Context, Environment, Response, Reverify, Task, Verdict
from environments.equivalence_llm_judge.extraction import answer_of, cut, question_of

_HERE = Path(__file__).parent
_PLACES = ("question", "expected_answer", "generated_answer")


class TemplateMetadata(BaseModel):
    """How the answer stands in the output: `output_regex` cuts it out."""

    model_config = ConfigDict(extra="allow")

    output_regex: str | None = None


class EquivalenceTask(Task):
    """A question (in the request's messages) and its gold answer, or `metadata.expected_answer` in its place."""

    expected_answer: str | None = None
    metadata: dict[str, Any] | None = None
    template_metadata: TemplateMetadata | None = None
    uuid: str | int | None = None
    options: list[dict[str, str]] | None = None

    @property
    def gold(self) -> str:
        """The gold answer's text; empty when the row has none."""
        other = (self.metadata or {}).get("expected_answer")
        return self.expected_answer or ("" if other is None else str(other))


class EquivalenceConfig(JudgeConfig):
    """The reference's fields (README). A template's places are `question`, `expected_answer` and `generated_answer`."""

    judge_prompt_template_fpath: str = "prompts/stem.txt"
    judge_system_message: str | None = None
    judge_equal_label: str = "[[A=B]]"
    judge_not_equal_label: str = "[[A!=B]]"
    question_extract_regex: str | None = None
    response_extract_regex: str | None = None
    msg_extraction_failure: str = "[NO VALID ANSWER EXTRACTED]"
    check_twice_swap: bool = False
    reward_if_swap_fails: float = 0.0
    use_per_record_regex: bool = True
    extraction_length_threshold: int | None = 120
    check_full_generation_on_fail: bool = True
    reward_if_full_generation_succeeds: float = 0.5


@dataclass(frozen=True, slots=True)
class _Evaluation:
    label: str | None
    entry: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Comparison:
    """What one rollout asks. `long`: the gold is too long for the row's pattern to apply, and to be judged twice."""

    question: str
    gold: str
    answer: str
    whole: str
    long: bool
    rescuable: bool


class EquivalenceLlmJudge(Environment):
    """Rewards answers that a judge finds equal to the gold, in both orders if wanted, in part when only the whole text is."""

    Task = EquivalenceTask
    Config = EquivalenceConfig
    reverify = Reverify.STATELESS

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.judge = Judge(self.config)
        self.template = Template.load(self.config.judge_prompt_template_fpath, base=_HERE, places=_PLACES)
        self.labels: tuple[str, str] = (self.config.judge_equal_label, self.config.judge_not_equal_label)

    async def verify(self, task: EquivalenceTask, response: Response, state: Any, context: Context) -> Verdict:
        comparison = await self._comparison(task, response, context)
        judge = partial(self._judged, context, comparison)
        reward, evaluations = await self._scored(comparison, judge)
        return Verdict(reward, expected_answer=comparison.gold, judge_evaluations=[e.entry for e in evaluations])

    async def _comparison(self, task: EquivalenceTask, response: Response, context: Context) -> _Comparison:
        config, gold = self.config, task.gold
        own = task.template_metadata.output_regex if task.template_metadata and config.use_per_record_regex else None
        threshold = config.extraction_length_threshold
        long = bool(own) and threshold is not None and len(gold) > threshold
        pattern = None if long else own or config.response_extract_regex
        whole = answer_of(response)
        question = await _cut(context, config.question_extract_regex, question_of(task.responses_create_params))
        if not whole:
            return _Comparison(question, gold, config.msg_extraction_failure, config.msg_extraction_failure, long, bool(own))
        return _Comparison(question, gold, await _cut(context, pattern, whole), whole, long, bool(own))

    async def _scored(self, comparison: _Comparison, judge: Any) -> tuple[float, list[_Evaluation]]:
        config = self.config
        if config.check_twice_swap and not comparison.long:
            evaluations = await both_orders(judge, comparison.gold, comparison.answer, self._equal)
        else:
            evaluations = [await judge(comparison.gold, comparison.answer)]
        if self._equal(evaluations[0]):
            return (1.0 if self._equal(evaluations[-1]) else config.reward_if_swap_fails), evaluations
        if comparison.long or not (config.check_full_generation_on_fail and comparison.rescuable):
            return 0.0, evaluations
        rescue = await judge(comparison.gold, comparison.whole)
        reward = config.reward_if_full_generation_succeeds if self._equal(rescue) else 0.0
        return reward, [*evaluations, rescue]

    async def _judged(self, context: Context, comparison: _Comparison, expected: str, generated: str) -> _Evaluation:
        values = {"question": comparison.question, "expected_answer": expected, "generated_answer": generated}
        written = "expected_answer" if expected is comparison.answer else "generated_answer"  # where a swap puts the policy's
        prompt = self.judge.prompt(context, self.template, values, candidate=[written], labels=self.labels)
        reply = await self.judge.try_ask(context, prompt, system=self.config.judge_system_message)
        if not isinstance(reply, JudgeReply):
            return _Evaluation(None, {"verdict_label": None, "error": str(reply)})
        label = first_label(reply.last_part, self.labels)
        return _Evaluation(label, reply.evaluation(label))

    def _equal(self, evaluation: _Evaluation) -> bool:
        return evaluation.label == self.labels[0]


async def _cut(context: Context, pattern: str | None, text: str) -> str:
    """`cut` in the process pool: a pattern of a row may hold the interpreter lock until its time is up."""
    return await context.compute(cut, pattern, text) if pattern else text
