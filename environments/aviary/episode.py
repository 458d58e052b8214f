"""Environments whose moves answer all tool calls of a turn at once (aviary.md, "Server protocol").

Owns the way from an episode's steps to the moves of a rollout. Invariant: the reward is the sum of the steps' rewards, kept in
the state; when the arguments of one call are no JSON, nothing of the step is executed.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from environments.environment import Context, Environment, Move, Response, Reverify, Seed, State, Verdict
from environments.response import Item

NOT_JSON = "Invalid tool call arguments (not a valid JSON)"


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of a turn; `arguments` is its parsed JSON, whatever that is."""

    call_id: str
    name: str
    arguments: Any


@dataclass(frozen=True, slots=True)
class Opening:
    """How an episode begins: what the policy is shown, the tools it has."""

    observations: tuple[Item, ...]
    tools: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step, or one call of it, led to."""

    observations: tuple[Item, ...]
    reward: float = 0.0
    done: bool = False


class Episode(State):
    """An episode as far as it has come. `env_id` and `group_id` go into the response."""

    env_id: str = ""
    group_id: str = ""
    reward: float = 0.0


class AviaryEnvironment(Environment):
    """Base of environments with `reset` and `step` that score every step."""

    State: ClassVar[type[Episode]] = Episode
    reverify = Reverify.UNSUPPORTED  # a stored rollout does not hold the rewards of its steps

    @abstractmethod
    async def reset(self, task: Any, episode: Any, context: Context) -> Opening:
        """Begin an episode."""

    @abstractmethod
    async def step(self, task: Any, calls: Sequence[Call], episode: Any, context: Context) -> Outcome:
        """Take the calls of a turn; there may be none."""

    async def seed(self, task: Any, context: Context) -> Seed:
        episode = self.State(env_id=context.rollout_id, group_id=str(task.task_idx))
        opening = await self.reset(task, episode, context)
        return Seed(episode, opening.observations, opening.tools)

    async def respond(self, task: Any, response: Response, state: Any, context: Context) -> Move:
        calls = read_calls(response)
        if calls is None:
            return Move((user(NOT_JSON),))
        outcome = await self.step(task, calls, state, context)
        state.reward += outcome.reward
        return Move(outcome.observations, outcome.done)

    async def verify(self, task: Any, response: Response, state: Any, context: Context) -> Verdict:
        """The sum of the rewards of all steps."""
        return Verdict(state.reward)


def read_calls(response: Response) -> list[Call] | None:
    """The calls of a turn; None when the arguments of one of them are no JSON."""
    try:
        return [
            Call(str(c.get("call_id") or ""), str(c.get("name") or ""), json.loads(str(c.get("arguments"))))
            for c in response.function_calls()
        ]
    except (ValueError, RecursionError):
        return None


def user(text: str) -> Item:
    """A user message."""
    return {"type": "message", "role": "user", "content": text}


def answer(call: Call, text: str) -> Item:
    """The output of a call."""
    return {"type": "function_call_output", "call_id": call.call_id, "output": text}


def function_tool(name: str, description: str, parameters: Mapping[str, str]) -> Mapping[str, Any]:
    """A tool all of whose parameters are required texts; `parameters` are descriptions by name."""
    properties = {n: {"type": "string", "description": d} for n, d in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {"type": "function", "name": name, "description": description, "parameters": schema, "strict": True}


def misfit(call: Call, tool: Mapping[str, Any]) -> str | None:
    """What is wrong with the names of a call's arguments, or None; their types are the tool's own affair."""
    wanted = set(tool["parameters"]["required"])
    if not isinstance(call.arguments, dict):
        return f"The arguments of {call.name} must be an object with {', '.join(sorted(wanted))}."
    found = set(call.arguments)
    problems = [f"{n} is missing" for n in sorted(wanted - found)] + [f"{n} is unknown" for n in sorted(found - wanted)[:10]]
    return f"The arguments of {call.name} do not fit: {', '.join(problems)}." if problems else None
