"""The agent interface: a pure state machine over turns.

An agent looks at a rollout and says what happens next: call a model, run tools, let the environment move, or finish.
Invariant: `next` depends only on its arguments and keeps nothing, so any worker can take the next step of any rollout,
and a step lost with its worker is taken again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from environments.response import Item, Response
from schemas.errors import RolloutError
from schemas.events import ToolCall
from schemas.quick import quick


@quick
@dataclass(frozen=True, slots=True)
class View:
    """What an agent sees of a rollout.

    `params` are the row's request parameters, `turn` counts the model calls made, `memory` is what the agent left in
    its last step, `items()` parses the conversation after the row's own input, `state()` what the environment keeps of it
    (its `State`, as JSON). `done`: the environment has ended it. `closable`: the environment may hold something that
    `CloseEnvironment` frees. `failure`: why the model calls just asked for gave no replies (`CallModel.on_failure`).
    `now`: the time, in seconds since the epoch.
    """

    params: Mapping[str, Any]
    turn: int = 0
    memory: Mapping[str, Any] = field(default_factory=dict)
    items: Callable[[], Sequence[Item]] = tuple
    done: bool = False
    state: Callable[[], Mapping[str, Any]] = dict
    closable: bool = False
    failure: RolloutError | None = None
    now: float = 0.0


@quick
@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call. `input` None means the row's input and everything since; `params` override the row's.

    `keep` names the parameters of the row that are sent at all; None sends every one. `timeout_s` bounds the call; without it
    the endpoint's own timeouts and the rollout's deadline do.
    """

    input: Sequence[Item] | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    model: str = "policy"
    keep: frozenset[str] | None = None
    timeout_s: float | None = None

    def params_over(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of the call but its input, over those of the `row`."""
        kept = row if self.keep is None else {k: v for k, v in row.items() if k in self.keep}
        return {**kept, **self.params}


@quick
@dataclass(frozen=True, slots=True)
class CallModel:
    """Make these calls, at once when there are several; the replies go to `next` in the same order.

    `on_failure`: a call that fails past its retries or its time ends the rollout (class `model` or `timeout`), or `next` is
    told: it gets no replies and finds the error as `view.failure`, which it may raise. Calls that failed count as made. When
    it was the rollout's own deadline that passed, the rollout ends in any case.
    """

    requests: tuple[ModelRequest, ...] = (ModelRequest(),)
    on_failure: Literal["end", "tell"] = "end"


@quick
@dataclass(frozen=True, slots=True)
class CallTools:
    """Run these calls in order on the tool worker. `may_end`: the rollout may finish before another model call."""

    calls: tuple[ToolCall, ...]
    may_end: bool = False


@quick
@dataclass(frozen=True, slots=True)
class AskEnvironment:
    """Let the environment move (`Environment.respond`)."""


@quick
@dataclass(frozen=True, slots=True)
class CloseEnvironment:
    """Let the environment free what it holds for the rollout (`Environment.close`). `next` comes once more after it."""


@dataclass(frozen=True, slots=True)
class Finish:
    """End the rollout. `fields` replace fields of the final response, which is otherwise the last reply with all items.

    `result` are fields of the result line; the verdict's win over them, and `responses_create_params` among them takes the
    place of the row's (an environment's first observation belongs to the request).
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)


Action = CallModel | CallTools | AskEnvironment | CloseEnvironment | Finish


@quick
@dataclass(frozen=True, slots=True)
class Step:
    """An action, the items to append to the conversation before it, and the memory to keep."""

    action: Action
    append: Sequence[Item] = ()
    memory: Mapping[str, Any] = field(default_factory=dict)


class AgentConfig(BaseModel):
    """Base of an agent's configuration (the `agent` block of a variant)."""

    model_config = ConfigDict(extra="forbid")


class Agent(ABC):
    """Base of all agents."""

    Config: ClassVar[type[AgentConfig]] = AgentConfig

    def __init__(self, config: Any = None) -> None:
        self.config: Any = config if config is not None else self.Config()

    @abstractmethod
    def next(self, view: View, replies: Sequence[Response]) -> Step:
        """The next step. `replies` answer the `CallModel` of this turn; empty when the turn begins or tools have run.

        A `RolloutError` that it raises ends the rollout with its class.
        """
