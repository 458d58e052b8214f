"""The tool-calling loop that goes on until a tool says that the work is done (agents.md, "finance_agent").

Invariant: whatever happens once a rollout has begun, it ends with what there is and says in its response's `metadata` why it
ended (`stop_reason`) and after how many model calls (`steps`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, ClassVar

from pydantic import Field

from environments.agents.agent import Agent, AgentConfig, CallModel, CallTools, Finish, ModelRequest, Step, View
from environments.agents.gymnasium_agent import as_messages
from environments.agents.simple_agent import tool_call
from environments.response import Item, Response, is_assistant_message
from schemas.errors import RolloutError
from schemas.events import ToolCall

OVERFLOW = "context_overflow"
"""Key in the metadata of the reply that stands for a conversation too long for the model (platform.md D6)."""

_OVERFLOW_TEXTS = ("context length", "context window", "prompt is too long", "maximum context")
"""How engines say the same in an error, in lower case."""

_MODEL_ITEMS = frozenset({"message", "reasoning", "function_call"})


class FinanceConfig(AgentConfig):
    """Bounds and ends of a rollout; times in seconds, null for no bound.

    `no_tool_call_nudge`: what the user says to a reply without calls. `done_tools` end the rollout. So does a tool reply whose
    error begins with one of `abort_on_tool_error_types` and a colon. `truncate_on_overflow`: when the conversation is too
    long for the model, its oldest exchange is left out and the call made again.
    """

    no_tool_call_nudge: str
    max_time_seconds: float | None = Field(ge=0)
    abort_on_tool_error_types: tuple[str, ...]
    max_steps: int = Field(default=50, ge=1, le=1_000)
    done_tools: tuple[str, ...] = ("submit_final_result",)
    model_call_timeout: float | None = Field(default=None, gt=0)
    truncate_on_overflow: bool = False


class FinanceAgent(Agent):
    """Calls the model and runs its tool calls until a tool, a bound or an error ends it.

    The memory: when it began (`begun`), whether the model has replied (`replied`), how many of the conversation's items are
    left out (`dropped`), and, while tools run, where the turn with the calls begins and ends (`calls`).
    """

    Config: ClassVar[type[AgentConfig]] = FinanceConfig

    def next(self, view: View, replies: Sequence[Response]) -> Step:
        memory = dict(view.memory) or {"begun": view.now}
        if replies:
            return self._after(view, replies[-1], memory)
        if view.failure is not None:
            return self._failed(view, memory, _is_overflow(view.failure))
        if "calls" in memory:
            return self._run(view, memory, ())
        return self._call(view, memory, ())

    def _call(self, view: View, memory: dict[str, Any], new: Sequence[Item]) -> Step:
        """The next model call, or the end when a bound is reached."""
        limit = self.config.max_time_seconds
        if view.turn >= self.config.max_steps:
            return self._stop(view, memory, "max_turns", new)
        if limit is not None and view.now - memory["begun"] >= limit:
            return self._stop(view, memory, "max_time", new)
        shown = None
        if memory.get("dropped"):
            shown = [*as_messages(view.params.get("input")), *[*view.items(), *new][memory["dropped"] :]]
        request = ModelRequest(shown, timeout_s=self.config.model_call_timeout)
        return Step(CallModel((request,), on_failure="tell"), new, memory)

    def _after(self, view: View, reply: Response, memory: dict[str, Any]) -> Step:
        if OVERFLOW in (reply.body.get("metadata") or {}):
            return self._failed(view, memory, overflow=True)
        memory["replied"] = True
        output = reply.output
        if reply.incomplete_reason == "max_output_tokens":
            return self._stop(view, memory, "max_output_tokens", output)
        if any(i.get("type") == "function_call" for i in output):
            start = len(view.items())
            memory["calls"] = [start, start + len(output)]
            return self._run(view, memory, output)
        nudge = {"type": "message", "role": "user", "content": self.config.no_tool_call_nudge}
        return self._call(view, memory, [*output, nudge] if any(map(is_assistant_message, output)) else output)

    def _run(self, view: View, memory: dict[str, Any], new: Sequence[Item]) -> Step:
        """The calls that have no output yet; those that cannot be read get theirs here."""
        items = [*view.items(), *new]
        start, end = memory["calls"]
        calls = [tool_call(i) for i in items[start:end] if i.get("type") == "function_call"]
        outputs, added = items[end:], list(new)
        while True:
            reason = self._ended(calls, outputs)
            if reason:
                return self._stop(view, memory, reason, added)
            waiting = calls[len(outputs) :]
            if not waiting:
                return self._call(view, {k: v for k, v in memory.items() if k != "calls"}, added)
            wrong = _unreadable(waiting[0])
            if wrong is None:
                return Step(CallTools(self._together(waiting), may_end=True), added, memory)
            told = {"type": "function_call_output", "call_id": waiting[0].call_id, "output": wrong}
            outputs.append(told)
            added.append(told)

    def _together(self, waiting: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
        """As many of the calls as nothing can come between: up to one that ends the rollout or cannot be read.

        When an error may end the rollout, that is one.
        """
        if self.config.abort_on_tool_error_types:
            return (waiting[0],)
        done = next((n for n, c in enumerate(waiting, 1) if c.name in self.config.done_tools), len(waiting))
        return tuple(takewhile(lambda c: _unreadable(c) is None, waiting[:done]))

    def _ended(self, calls: Sequence[ToolCall], outputs: Sequence[Item]) -> str | None:
        """Why the last output ends the rollout."""
        if not outputs:
            return None
        if calls[len(outputs) - 1].name in self.config.done_tools:
            return "done_tool"
        error = _error_of(outputs[-1].get("output"))
        return "error" if any(error.startswith(f"{kind}:") for kind in self.config.abort_on_tool_error_types) else None

    def _failed(self, view: View, memory: dict[str, Any], overflow: bool) -> Step:
        items = view.items()
        cut = _oldest_exchange(items, memory.get("dropped", 0))
        if overflow and self.config.truncate_on_overflow and cut < len(items):
            return self._call(view, {**memory, "dropped": cut}, ())
        return self._stop(view, memory, "error", ())

    def _stop(self, view: View, memory: Mapping[str, Any], reason: str, new: Sequence[Item]) -> Step:
        fields: dict[str, Any] = {"metadata": {"stop_reason": reason, "steps": str(view.turn)}}
        if not memory.get("replied"):
            fields |= {"id": "error", "object": "response", "created_at": 0, "model": "error"}
        return Step(Finish(fields), new)


def _oldest_exchange(items: Sequence[Item], start: int) -> int:
    """Where the exchange ends that begins at `start`: items of the model, then tool outputs and messages of the user."""
    end = start
    while end < len(items) and _is_models(items[end]):
        end += 1
    while end < len(items) and not _is_models(items[end]):
        end += 1
    return end


def _is_models(item: Item) -> bool:
    return item.get("type", "message") in _MODEL_ITEMS and item.get("role", "assistant") == "assistant"


def _unreadable(call: ToolCall) -> str | None:
    """What the model is told about arguments that are not JSON."""
    try:
        json.loads(call.arguments)
    except (ValueError, RecursionError) as e:
        why = f"Tool call failed: {type(e).__name__}: {e}. Please try a different approach or submit your final answer."
        return json.dumps({"error": why})
    return None


def _error_of(output: Any) -> str:
    """The error in a tool's reply: in `results`, which is JSON in a text, or beside it; empty when there is none."""
    body = _object(output)
    error = _object(body.get("results")).get("error") or body.get("error")
    return error if isinstance(error, str) else ""


def _object(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}


def _is_overflow(failure: RolloutError) -> bool:
    said = f"{failure} {failure.detail}".lower()
    return any(text in said for text in _OVERFLOW_TEXTS)
