"""The environment interface.

One class carries every kind in design §5: plain scoring, judges, sandboxed code, tools with and without state, live
sessions, a partner in the conversation, group scoring. Invariant: an environment holds configuration only. What belongs
to a rollout lives in its state, which travels in the event, so any worker can serve any rollout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from environments.context import Context
from environments.response import Item, Response
from environments.tools import BoundTool, tools_of
from environments.verdict import Verdict
from schemas.quick import quick


class Task(BaseModel):
    """Base of an environment's task fields: a row (platform.md A1). Fields it does not name are carried along."""

    model_config = ConfigDict(extra="allow")

    responses_create_params: dict[str, Any]  # checked strictly where rows enter (`schemas.rows`)


class State(BaseModel):
    """Base of an environment's per-rollout state; it travels in the event as JSON."""


class Config(BaseModel):
    """Base of an environment's configuration, as a variant in `config.yaml` sets it."""

    model_config = ConfigDict(extra="forbid")


class Reverify(StrEnum):
    """Whether scoring a stored rollout again gives the same score (platform.md C3)."""

    STATELESS = "stateless"
    UNSUPPORTED = "unsupported"
    UNKNOWN = "unknown"


@quick
@dataclass(frozen=True, slots=True)
class Seed:
    """How a rollout begins: its state, items the environment puts before the first turn, tools it adds to the row's."""

    state: State | None = None
    items: tuple[Item, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()


@quick
@dataclass(frozen=True, slots=True)
class Move:
    """The environment's answer to a turn of the policy: items to append, or the end of the rollout."""

    items: tuple[Item, ...] = ()
    done: bool = False


@dataclass(frozen=True, slots=True)
class Member:
    """One rollout of a group."""

    task: Any
    response: Response
    state: Any = None
    rollout_index: int = 0


@dataclass(frozen=True, slots=True)
class Scores:
    """What an environment's metrics (platform.md B11) are computed from: score names and, if any, the answer field.

    `subset`: a field of the result by whose values everything is given again. `sample_std_dev` adds the deviation within tasks.
    `headline` chooses the key metrics (`environments.metrics.headline`); without it they are the means.
    """

    scores: Mapping[str, str] = field(default_factory=lambda: {"accuracy": "reward"})
    answer: str | None = None
    subset: str | None = None
    sample_std_dev: bool = False
    headline: tuple[str, ...] = ()


class Environment:
    """Base of all environments. Methods may be `def` or `async def`; the workers run both off their event loop.

    A `def` method is free to compute for long: it delays only its own rollout. Subclasses set the class variables and
    override what they need; a plain scorer overrides `verify` alone.
    """

    Task: ClassVar[type[BaseModel]] = Task
    State: ClassVar[type[BaseModel] | None] = None
    Config: ClassVar[type[BaseModel]] = Config

    version: ClassVar[str] = "1"
    reverify: ClassVar[Reverify] = Reverify.UNKNOWN
    scoring: ClassVar[Literal["rollout", "group"]] = "rollout"
    cpu_heavy: ClassVar[bool] = False
    """Verified in a process pool: code that holds the interpreter lock for long (C extensions, backtracking regexes)."""
    seed_on: ClassVar[Literal["admission", "tool_worker"]] = "admission"
    """Where `seed` runs; environments with live sessions or slow resets seed on the tool worker."""
    tool_errors: ClassVar[Literal["fail", "tell_model"]] = "fail"
    """What an exception in a tool does: ends the rollout with class `tool`, or becomes text (the reference's HTTP 500)."""
    metrics: ClassVar[Scores | None] = None

    def __init__(self, config: Any = None) -> None:
        self.config: Any = config if config is not None else self.Config()
        self.tools: dict[str, BoundTool] = tools_of(self)

    @property
    def has_metrics_of_its_own(self) -> bool:
        """Whether `own_metrics` says anything; it is then given more of each rollout than its scores."""
        return type(self).own_metrics is not Environment.own_metrics

    def own_metrics(self, tasks: Sequence[Sequence[Mapping[str, Any]]]) -> Mapping[str, Any]:
        """Metrics beside those of `metrics`, from the result lines of one of its agents, by task, both in order (B12).

        Lines come without `response` (but for its `usage`), `responses_create_params` and `ng_…` fields. Under
        `per_task_metrics` it may give a list of objects with `_ng_task_index`, which join those of their tasks.
        """
        return {}

    def notes(self, lines: Sequence[Mapping[str, float | None]]) -> Sequence[str]:
        """What whoever reads the averages of a run must know, from the numbers of its result lines; shown beside them."""
        return ()

    def seed(self, task: Any, context: Context) -> Any:
        """Start a rollout: returns (or resolves to) a `Seed`. Raises `DataError` for a task it cannot start."""
        return Seed()

    def respond(self, task: Any, response: Response, state: Any, context: Context) -> Any:
        """The environment's move after a turn of the policy (`Move`); `response` is that turn."""
        raise NotImplementedError

    def verify(self, task: Any, response: Response, state: Any, context: Context) -> Any:
        """Score one rollout: returns (or resolves to) a `Verdict`. Raises `JudgeError` when a judge call failed."""
        raise NotImplementedError

    def verify_group(self, members: Sequence[Member], context: Context) -> Any:
        """Score all rollouts of a task together: a `Verdict` for each member, in their order."""
        raise NotImplementedError

    def close(self, task: Any, state: Any, context: Context) -> Any:
        """Free what the environment holds for the rollout elsewhere (a server's episode, a container).

        Called when an agent asks for it (`CloseEnvironment`) and after a move or tool that failed; it may be called again
        for a rollout that is closed. A rollout that expires or is cancelled is not closed, so what is held elsewhere must
        end by itself in the end. What it raises is logged and changes nothing.
        """

    def call_unknown_tool(self, name: str, arguments: Any, task: Any, state: Any, context: Context) -> Any:
        """Answer a call to a tool the environment does not define (tools given by the row); None refuses it."""
        return None


__all__ = [
    "Config",
    "Context",
    "Environment",
    "Member",
    "Move",
    "Response",
    "Reverify",
    "Scores",
    "Seed",
    "State",
    "Task",
    "Verdict",
]
