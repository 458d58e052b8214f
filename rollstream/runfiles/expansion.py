"""Rows of a dataset to the rollouts they stand for (platform.md B1): agent, overrides, indices, repeats, seeds.

Invariant: a `TaskRow` is valid for its environment (its fields, its request, its agent), so nothing that a stage would
refuse at once is dispatched; whatever is not comes out as a `RowProblem` in the place of the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from pydantic import ValidationError

from environments.registry import Binding, Registry
from rollstream.runfiles.indices import Indices
from rollstream.runfiles.problems import PlanError, RowProblem
from rollstream.runfiles.prompt_config import InputTakenError, PromptConfig
from rollstream.runfiles.repeats import RepeatPlan, Repeats
from rollstream.runfiles.skills import SKILLS_REF
from rollstream.runfiles.source import Line, read_lines
from schemas import jsontext
from schemas.errors import DataError
from schemas.rows import AGENT_REF, PARAMS, ROLLOUT_ID, ROLLOUT_INDEX, TASK_INDEX, CreateParams, agent_name, check_row, describe

AGENT_TYPE = "responses_api_agents"
EXTRA_BODY = "extra_body"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does to its rows.

    `environment` or `agent` fill the `agent_ref` of rows that lack one. `overrides` are merged into
    `responses_create_params`, one level deep, and win; null is a value. `add_seed` gives each rollout its index as seed.
    `limit` counts rows before repetition, 0 takes all. `prompt` makes the input of every row (B7), `skills` is stamped on
    it (B8).
    """

    environment: str | None = None
    agent: str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    repeats: Repeats = None
    add_seed: bool = False
    limit: int = 0
    prompt: PromptConfig | None = None
    skills: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A checked row of line `line` that stands for rollouts `first_rollout … first_rollout + repeats - 1` of its task."""

    line: int
    row: dict[str, Any]
    agent: str
    task_index: int
    first_rollout: int
    repeats: int
    add_seed: bool = False

    def rollouts(self) -> Iterator[dict[str, Any]]:
        """The materialized rows, one a rollout, in order."""
        for i in range(self.first_rollout, self.first_rollout + self.repeats):
            row = {**self.row, TASK_INDEX: self.task_index, ROLLOUT_INDEX: i}
            yield _seeded(row, i) if self.add_seed else row


class Expansion:
    """One pass over a dataset. Raises `PlanError` for a plan that cannot fit any row.

    `tasks` (rollouts by task index), `check` and `warnings` are complete once the rows have been read.
    """

    def __init__(self, plan: Plan, registry: Registry) -> None:
        self._plan = plan
        self._repeats = RepeatPlan(plan.repeats)
        self._indices = Indices()
        self._agents = AgentChecks(registry)
        self._taken: list[int] = []
        self._fill = _run_level_agent(plan, registry)
        _check_overrides(plan.overrides)

    @property
    def tasks(self) -> Mapping[int, int]:
        return self._indices.tasks

    def rows(self, file: BinaryIO, name: str) -> Iterator[TaskRow | RowProblem]:
        """The rows of `file`, called `name` in problems, in its order."""
        for line in read_lines(file, name, self._plan.limit):
            if isinstance(line, RowProblem):
                yield line
                continue
            try:
                yield self._row(line)
            except InputTakenError as e:
                self._taken.append(line.number)
                yield RowProblem(name, line.number, str(e), line.text)
            except DataError as e:
                yield RowProblem(name, line.number, str(e), line.text)

    def check(self) -> None:
        """Raise `PlanError` for what only all rows together show.

        These are agents without a number of repeats, and rows with an input of their own beside a prompt config.
        """
        self._repeats.check()
        if self._taken:
            raise PlanError(
                f"a prompt config is given, and {len(self._taken):,} rows have an input of their own, in lines "
                f"{', '.join(map(str, self._taken))}; leave one of the two out"
            )

    def warnings(self) -> list[str]:
        return [*(self._plan.prompt.warnings if self._plan.prompt else ()), *self._repeats.warnings()]

    def _row(self, line: Line) -> TaskRow:
        row = check_row(self._with_run_level(_parsed(line.text)))
        agent = agent_name(row)
        if agent is None:
            raise DataError(f"the row has no {AGENT_REF}; give it one, or name an environment or agent for the run")
        self._agents.check(row, agent)
        repeats = self._repeats.of(agent)
        if repeats is None:
            raise DataError(f"num_repeats has no entry for its agent {agent}")
        if self._plan.add_seed:
            _seeded(row, 0)
        task = self._indices.task(row.get(TASK_INDEX), line.text)
        self._indices.claim_id(row.get(ROLLOUT_ID), task)
        return TaskRow(line.number, row, agent, task, self._indices.rollouts(task, repeats), repeats, self._plan.add_seed)

    def _with_run_level(self, row: dict[str, Any]) -> dict[str, Any]:
        if self._plan.prompt is not None:
            row = self._plan.prompt.fill(row)
        if self._fill is not None and row.get(AGENT_REF) is None:
            row = {**row, AGENT_REF: {"type": AGENT_TYPE, "name": self._fill}}
        params = row.get(PARAMS)
        if self._plan.overrides and isinstance(params, dict):
            row = {**row, PARAMS: {**params, **self._plan.overrides}}
        return row if self._plan.skills is None else {**row, SKILLS_REF: self._plan.skills}


class AgentChecks:
    """Whether rows fit the environments of their agents; environments are loaded once."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._bindings: dict[str, Binding | DataError] = {}

    def check(self, row: dict[str, Any], agent: str) -> None:
        """Raise `DataError` for an agent that is not known here and for fields that its environment refuses."""
        binding = self._bindings.get(agent)
        if binding is None:
            binding = self._bindings[agent] = _bind(self._registry, agent)
        if isinstance(binding, DataError):
            raise binding
        try:
            binding.environment.Task.model_validate(row)
        except ValidationError as e:
            raise DataError(describe(e, "row")) from e


def _bind(registry: Registry, agent: str) -> Binding | DataError:
    try:
        return registry.binding(None, agent)
    except DataError as e:
        return e
    except ImportError as e:
        return DataError(f"the environment of agent {agent} cannot be loaded here: {e}")


def _run_level_agent(plan: Plan, registry: Registry) -> str | None:
    if plan.environment is None and plan.agent is None:
        return None
    try:
        return registry.binding(plan.environment, plan.agent).agent_name
    except (DataError, ImportError) as e:
        raise PlanError(str(e)) from e


def _check_overrides(overrides: Mapping[str, Any]) -> None:
    try:
        CreateParams.model_validate({"input": "", **overrides})
    except ValidationError as e:
        raise PlanError(describe(e, f"override of {PARAMS}")) from e


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        row = jsontext.loads(text)
    except ValueError as e:
        raise DataError(f"not JSON: {e}") from e
    if not isinstance(row, dict):
        raise DataError("expected a JSON object")
    return row


def _seeded(row: dict[str, Any], seed: int) -> dict[str, Any]:
    """The row with `seed` in its `extra_body`; raises `DataError` when that is not an object written as a string."""
    metadata = row[PARAMS].get("metadata") or {}
    text = metadata.get(EXTRA_BODY, "{}")
    try:
        body = jsontext.loads(text)
    except (ValueError, TypeError) as e:
        raise DataError(f"{PARAMS}.metadata.{EXTRA_BODY} is not JSON: {e}") from e
    if not isinstance(body, dict):
        raise DataError(f"{PARAMS}.metadata.{EXTRA_BODY} must hold a JSON object as a string")
    changed = {**metadata, EXTRA_BODY: jsontext.dumps({**body, "seed": seed}).decode()}
    return {**row, PARAMS: {**row[PARAMS], "metadata": changed}}
