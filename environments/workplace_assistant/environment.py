"""Office work: 1.0 when the calls bring the databases into the state that the reference list of calls brings them to.

The databases themselves travel with no rollout: its state is what it has changed, and scoring replays calls (`replay`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from environments.common.arguments import decoded
from environments.common.extras import require
from environments.environment import Config, Context, Environment, Response, Reverify, Seed, State, Task, Verdict
from environments.tools import ToolReply, argument_errors
from environments.workplace_assistant.databases import Base, Databases
from environments.workplace_assistant.tooling import tools_of
from environments.workplace_assistant.toolkits.analytics import AnalyticsTool
from environments.workplace_assistant.toolkits.calendar import CalendarTool
from environments.workplace_assistant.toolkits.customers import CustomerRelationshipManagerTool
from environments.workplace_assistant.toolkits.directory import CompanyDirectoryTool
from environments.workplace_assistant.toolkits.email import EmailTool
from environments.workplace_assistant.toolkits.projects import ProjectManagementTool
from schemas import jsontext
from schemas.errors import InfrastructureError, RolloutError

TOOLS = tools_of(
    CompanyDirectoryTool, EmailTool, CalendarTool, AnalyticsTool, ProjectManagementTool, CustomerRelationshipManagerTool
)
EXAMPLE = Path(__file__).parent / "data" / "databases"
NAME = "workplace_assistant"

_UNSEEDED = ToolReply('{"detail":"Session not initialized. Please call seed_session first."}', status=400)


class WorkplaceTask(Task):
    """The calls whose effect is wanted: `name` and `arguments` (JSON text) each; a text stands for no calls.

    `databases: example` (ours) means the small databases of this project; without it, those that are configured or fetched.
    """

    ground_truth: list[dict[str, str]] | str
    id: int
    category: str
    environment_name: str
    databases: Literal["example"] | None = None


class WorkplaceConfig(Config):
    """`databases`: a folder with the CSV files; null for the fetched ones. `row_labels`: compare them as the reference does."""

    databases: Path | None = None
    row_labels: bool = True


class Changes(State):
    """What a rollout has changed, and in which databases (their digest; empty when it was never seeded)."""

    base: str = ""
    changes: dict[str, Any] = Field(default_factory=dict)


class WorkplaceAssistant(Environment):
    """Rewards calls whose effect on the databases is that of the expected calls."""

    Task = WorkplaceTask
    Config = WorkplaceConfig
    State = Changes
    reverify = Reverify.STATELESS
    seed_on = "tool_worker"  # where the tools run, so that admission needs no databases

    def seed(self, task: WorkplaceTask, context: Context) -> Seed:
        own = task.responses_create_params.get("tools")
        return Seed(Changes(base=self._base(task, context).digest), tools=() if own else SCHEMAS)

    def call_unknown_tool(self, name: str, arguments: Any, task: WorkplaceTask, state: Changes, context: Context) -> Any:
        if not isinstance(arguments, dict):
            return _no_object(arguments)
        if not state.base:
            return _UNSEEDED
        databases = Databases.of(self._same_base(task, state, context), state.changes)
        try:
            given = {key: value for key, value in _writable(arguments).items() if value is not None}
            result = TOOLS[name].run(databases, given, context.now())
        except RolloutError:
            raise
        except Exception as e:  # noqa: BLE001 - whatever goes wrong inside a tool, the model reads
            return {"output": f"Error executing tool '{name}': {e}"}
        state.changes = databases.changes()
        return {"output": result}

    def verify(self, task: WorkplaceTask, response: Response, state: Any, context: Context) -> Verdict:
        base, now = self._base(task, context), context.now()
        expected = task.ground_truth if isinstance(task.ground_truth, list) else ()
        wanted, made = replay(base, expected, now), replay(base, response.function_calls(), now)
        return Verdict(1.0 if made.same_as(wanted, labels=self.config.row_labels) else 0.0)

    def _same_base(self, task: WorkplaceTask, state: Changes, context: Context) -> Base:
        base = self._base(task, context)
        if base.digest != state.base:
            raise InfrastructureError("this worker has other databases than the one on which the rollout began")
        return base

    def _base(self, task: WorkplaceTask, context: Context) -> Base:
        require(NAME, "dateutil")
        if task.databases == "example":
            return Base.load(EXAMPLE)
        folder = self.config.databases or (context.data_dir and context.data_dir / NAME)
        if folder is None or not folder.is_dir():
            where = f" in {folder}" if folder else ""
            raise InfrastructureError(
                f"workplace_assistant has no databases{where}: run `rollstream environment fetch {NAME}`, or name their folder "
                "in the variant's `databases`",
                retryable=False,
            )
        return Base.load(folder)


def replay(base: Base, calls: Iterable[Mapping[str, Any]], now: float) -> Databases:
    """Fresh databases after these calls (`name`, `arguments`); one that goes wrong is skipped.

    Tools that only read are skipped as well: they change nothing that is compared.
    """
    databases = Databases.of(base)
    for call in calls:
        tool = TOOLS.get(str(call.get("name")))
        if tool is not None and tool.changes:
            try:
                tool.run(databases, decoded(call.get("arguments")), now)
            except Exception:  # noqa: BLE001, S112 - a call that fails has no effect
                continue
    return databases


SCHEMAS = tuple(tool.schema() for tool in TOOLS.values())


class _Arguments(BaseModel):
    """Any object."""


def _no_object(arguments: Any) -> ToolReply:
    try:
        _Arguments.model_validate(arguments, from_attributes=True)
    except ValidationError as e:
        return argument_errors(e, arguments)
    raise TypeError(f"a tool's arguments decoded to {type(arguments).__name__}")


def _writable(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments that the rollout's state can carry: lone surrogates spelled out. Raises `ValueError` for deep nesting."""
    if jsontext.too_deep(arguments):
        raise ValueError("arguments are nested too deep")
    return {key: _spelled(value) for key, value in arguments.items()}


def _spelled(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else jsontext.without_surrogates(value)
    if isinstance(value, list):
        return [_spelled(v) for v in value]
    return {_spelled(k): _spelled(v) for k, v in value.items()} if isinstance(value, dict) else value
