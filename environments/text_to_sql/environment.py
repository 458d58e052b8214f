"""SQL for a question: a judge decides whether the policy's query and the gold query are interchangeable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from environments.common.judging import Judge, JudgeConfig, JudgeReply, both_orders
from environments.common.labels import first_label
from environments.common.replies import all_messages
from environments.common.template import Template
from environments.environment import Context, Environment, Response, Reverify, Task, Verdict
from environments.text_to_sql.extraction import sql_of

DIALECTS = ("mysql", "postgresql", "sqlite")
_ALIASES = {"postgres": "postgresql", "pg": "postgresql", "sqlite3": "sqlite"}

_PROMPTS = Path(__file__).with_name("prompts")
_PLACES = ("dialect", "context", "question", "first", "second")


def dialect_of(name: str) -> str:
    """The dialect that `name` means; raises `ValueError` for one that is not supported."""
    lower = name.strip().lower()
    dialect = _ALIASES.get(lower, lower)
    if dialect not in DIALECTS:
        raise ValueError(f"unsupported SQL dialect {name!r}; supported are {', '.join(DIALECTS)}")
    return dialect


@cache
def _rules() -> str:
    """The built-in system message of the judge."""
    return (_PROMPTS / "rules.txt").read_text("utf-8").strip()


class TextToSqlTask(Task):
    """A question (`sql_prompt`), its schema and data (`sql_context`: CREATE and INSERT statements), and the gold query."""

    sql: str
    sql_dialect: Annotated[str, AfterValidator(dialect_of)]
    sql_prompt: str
    sql_context: str = ""
    uuid: str | int | None = None
    metadata: dict[str, Any] | None = None


class TextToSqlConfig(JudgeConfig):
    """`check_twice_swap`: a query that is equal is judged again with the two exchanged. An empty system message is none."""

    judge_system_message: str | None = Field(default_factory=_rules)
    judge_equal_label: str = "[[A=B]]"
    judge_not_equal_label: str = "[[A!=B]]"
    check_twice_swap: bool = True
    reward_if_swap_fails: float = 0.0


@dataclass(frozen=True, slots=True)
class _Evaluation:
    label: str | None
    entry: dict[str, Any]


class TextToSql(Environment):
    """Rewards a query that the judge finds equal to the gold one, in both orders. No SQL is executed."""

    Task = TextToSqlTask
    Config = TextToSqlConfig
    reverify = Reverify.STATELESS

    def __init__(self, config: TextToSqlConfig | None = None) -> None:
        super().__init__(config)
        self.judge = Judge(self.config)
        self.template = Template.load("comparison.txt", base=_PROMPTS, places=_PLACES)
        self.labels: tuple[str, str] = (self.config.judge_equal_label, self.config.judge_not_equal_label)

    async def verify(self, task: TextToSqlTask, response: Response, state: Any, context: Context) -> Verdict:
        text = all_messages(response, separator="") or ""
        sql = sql_of(text)
        if not sql:
            return _verdict(task, 0.0, "no_sql_extracted", text, sql, [])
        evaluations = await self._evaluations(task, sql, context)
        equal = [e.label == self.labels[0] for e in evaluations]
        entries = [e.entry for e in evaluations]
        if all(equal):
            return _verdict(task, 1.0, "none", text, sql, entries)
        reward = self.config.reward_if_swap_fails if equal[0] else 0.0
        return _verdict(task, reward, "judge_evaluation_failed", text, sql, entries)

    async def _evaluations(self, task: TextToSqlTask, sql: str, context: Context) -> list[_Evaluation]:
        async def judged(first: str, second: str) -> _Evaluation:
            return await self._judged(task, first, second, context, written="second" if second is sql else "first")

        if self.config.check_twice_swap:
            return await both_orders(judged, task.sql, sql, lambda e: e.label == self.labels[0])
        return [await judged(task.sql, sql)]

    async def _judged(self, task: TextToSqlTask, first: str, second: str, context: Context, *, written: str) -> _Evaluation:
        known = {"dialect": task.sql_dialect, "context": task.sql_context, "question": task.sql_prompt}
        values = {**known, "first": first, "second": second}
        prompt = self.judge.prompt(context, self.template, values, candidate=[written], labels=self.labels)
        reply = await self.judge.try_ask(context, prompt, system=self.config.judge_system_message)
        if not isinstance(reply, JudgeReply):
            return _Evaluation(None, {"verdict_label": None, "error": str(reply)})
        label = first_label(reply.all_messages, self.labels)
        return _Evaluation(label, reply.evaluation(label))


def _verdict(
    task: TextToSqlTask, reward: float, reason: str, text: str, sql: str | None, evaluations: Sequence[dict[str, Any]]
) -> Verdict:
    return Verdict(
        reward,
        sql_dialect=task.sql_dialect,
        sql_context=task.sql_context,
        model_output=text,
        extracted_sql=sql,
        judge_passed=reason == "none",
        failure_reason=reason,
        judge_evaluations=list(evaluations),
    )
