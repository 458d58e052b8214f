"""Tool calls as moves of an environment that answers with messages (agents.md, "aviary_agent").

Invariant: the conversation's items are kept once, in order; the memory holds only where steps begin and end, from which the
transitions (the whole state after each step) are put together when the rollout ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from environments.agents.agent import (
    Agent,
    AgentConfig,
    AskEnvironment,
    CallModel,
    CloseEnvironment,
    Finish,
    ModelRequest,
    Step,
    View,
)
from environments.agents.gymnasium_agent import as_messages
from environments.response import Item, Response, is_assistant_message
from schemas.errors import ModelError

ENV_STATE = "is_env_state"
"""Mark of a message that shows the environment's whole state, so that an older one may be hidden. Never sent to the model."""

REMINDER = "Please go on by calling one of the tools. Only a tool call can continue or end this task."


class AviaryConfig(AgentConfig):
    """`max_steps`: model calls at most (null: no limit).

    `return_transitions`: the response's output is a list of lists, the state after each step. `max_total_sequence_length` is
    accepted and, as in the reference, not used.
    """

    max_steps: int | None = Field(default=None, ge=0)
    return_transitions: bool = True
    max_total_sequence_length: int | None = None
    done_if_no_tool_calls: bool = True
    collapse_old_env_states: bool = False
    old_env_state_message: str = "[Previous environment state - hidden]"


class AviaryAgent(Agent):
    """All calls of a turn are one step of the environment, which ends the rollout; so does a message without calls.

    A model call that fails after a first reply ends the rollout as it stands. The environment's state has `env_id` and
    `group_id`, which the response repeats.
    """

    Config: ClassVar[type[AgentConfig]] = AviaryConfig

    def next(self, view: View, replies: Sequence[Response]) -> Step:
        memory = dict(view.memory) or {"opening": len(view.items()), "steps": [], "reminders": []}
        if replies:
            return self._after(view, replies[-1], {**memory, "replied": True})
        if memory.get("closing"):
            return self._end(view, memory)
        if "asked" in memory:
            memory["steps"] = [*memory["steps"], [memory.pop("asked"), len(view.items())]]
        if view.failure is not None:
            return self._close(view, memory if memory.get("replied") else {**memory, "error": str(view.failure)})
        return self._go_on(view, memory)

    def _after(self, view: View, reply: Response, memory: dict[str, Any]) -> Step:
        output = reply.output
        end = len(view.items()) + len(output)
        calls = any(i.get("type") == "function_call" for i in output)
        if calls or not any(is_assistant_message(i) for i in output):
            return Step(AskEnvironment(), output, {**memory, "asked": end})
        if self.config.done_if_no_tool_calls or self._at_limit(view):
            return self._close(view, memory, output)
        reminder = {"type": "message", "role": "user", "content": REMINDER}
        return Step(CallModel(on_failure="tell"), [*output, reminder], {**memory, "reminders": [*memory["reminders"], end]})

    def _go_on(self, view: View, memory: Mapping[str, Any]) -> Step:
        if view.done or self._at_limit(view):
            return self._close(view, memory)
        items = view.items()
        request = ModelRequest()
        if any(ENV_STATE in i for i in items):
            steps = memory["steps"]
            request = ModelRequest([*as_messages(view.params.get("input")), *self._shown(items, steps[-1:], len(items))])
        return Step(CallModel((request,), on_failure="tell"), memory=memory)

    def _at_limit(self, view: View) -> bool:
        return self.config.max_steps is not None and view.turn >= self.config.max_steps

    def _close(self, view: View, memory: Mapping[str, Any], output: Sequence[Item] = ()) -> Step:
        if view.closable:
            return Step(CloseEnvironment(), output, {**memory, "closing": True})
        return self._end(view, memory, output)

    def _end(self, view: View, memory: Mapping[str, Any], output: Sequence[Item] = ()) -> Step:
        if "error" in memory:
            raise ModelError(memory["error"])
        if not memory.get("replied"):
            raise ModelError("the rollout ended before the model was called (max_steps is 0)", retryable=False)
        items = [*view.items(), *output]
        state = view.state()
        fields = {
            "output": self._transitions(view, items, memory) if self.config.return_transitions else _flat(items, memory),
            "env_id": state.get("env_id"),
            "group_id": state.get("group_id"),
            "contains_transitions": self.config.return_transitions,
        }
        return Step(Finish(fields), output)

    def _transitions(self, view: View, items: Sequence[Item], memory: Mapping[str, Any]) -> list[list[Item]]:
        given = as_messages(view.params.get("input"))
        return [[*given, *self._shown(items, [step], step[1])] for step in memory["steps"]]

    def _shown(self, items: Sequence[Item], last: Sequence[Sequence[int]], end: int) -> list[Item]:
        """The items up to `end` as the model sees them once the `last` step (its observations' start and end) is over."""
        old = last[0][0] if last and self.config.collapse_old_env_states else 0
        hidden = {"type": "message", "role": "user", "content": self.config.old_env_state_message}
        return [hidden if ENV_STATE in item and i < old else _plain(item) for i, item in enumerate(items[:end])]


def _flat(items: Sequence[Item], memory: Mapping[str, Any]) -> list[Item]:
    left_out = set(memory["reminders"])
    return [_plain(i) for n, i in enumerate(items) if n >= memory["opening"] and n not in left_out]


def _plain(item: Item) -> Item:
    return {k: v for k, v in item.items() if k != ENV_STATE} if ENV_STATE in item else item
