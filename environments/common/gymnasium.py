"""Environments that reset, step and close (agents.md, "gymnasium_agent").

Owns the way from an episode's replies to the moves of a rollout. Invariant: the reward is the sum of the steps' rewards, kept
in the state; a step that ends the episode shows no observation.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import Field

from environments.context import Context
from environments.environment import Environment, Move, Seed, State
from environments.response import Item, Response
from environments.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Reset:
    """How an episode begins. `info` may hold `supports_explicit_close` and `supports_step_idempotency`."""

    observation: str | None = None
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stepped:
    """What a step led to. `info.tool_outputs` are outputs of the turn's calls: objects with `call_id` and `output`."""

    observation: str | None = None
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)


class Episode(State):
    """An episode as far as it has come. Subclasses add what they need to find it again."""

    reward: float = 0.0
    steps: int = 0
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] = Field(default_factory=dict)
    closes: bool = False
    idempotent: bool = False


class GymnasiumEnvironment(Environment):
    """Base of environments with `reset`, `step` and, where an episode holds something, `shut`."""

    State: ClassVar[type[Episode]] = Episode

    @abstractmethod
    async def reset(self, task: Any, episode: Any, context: Context) -> Reset:
        """Begin an episode; what is needed to find it again goes into `episode`."""

    @abstractmethod
    async def step(self, task: Any, response: Response, episode: Any, context: Context, request_id: str | None) -> Stepped:
        """Take the policy's turn. `request_id` names the step where the episode promised to do a repeated one once."""

    async def shut(self, task: Any, episode: Any, context: Context) -> None:
        """Free the episode; called when it said that it supports that."""

    async def seed(self, task: Any, context: Context) -> Seed:
        episode = self.State()
        begun = await self.reset(task, episode, context)
        episode.closes = bool(begun.info.get("supports_explicit_close"))
        episode.idempotent = bool(begun.info.get("supports_step_idempotency"))
        return Seed(episode, items=said(begun.observation))

    async def respond(self, task: Any, response: Response, state: Any, context: Context) -> Move:
        # Of the rollout and the step, so that a step taken again after a worker was lost has the same name.
        request_id = f"{context.rollout_id}-{state.steps}" if state.idempotent else None
        result = await self.step(task, response, state, context, request_id)
        state.steps += 1
        state.reward += result.reward
        state.terminated, state.truncated = result.terminated, result.truncated
        state.info = dict(result.info)
        if result.terminated or result.truncated:
            return Move(done=True)
        return Move((*_outputs(result.info), *said(result.observation)))

    async def verify(self, task: Any, response: Response, state: Any, context: Context) -> Verdict:
        """The sum of the rewards. An episode that nobody ended was cut off by the agent."""
        truncated = state.truncated or not state.terminated
        return Verdict(state.reward, terminated=state.terminated, truncated=truncated, info=state.info)

    async def close(self, task: Any, state: Any, context: Context) -> None:
        """Shut the episode once, where it supports that; a failure becomes `info.cleanup_warning`."""
        if not state.closes:
            return
        state.closes = False
        try:
            await self.shut(task, state, context)
        except Exception as e:  # noqa: BLE001 - a good rollout stays good; whatever went wrong is told
            state.info["cleanup_warning"] = f"the episode was not closed: {e}"


def said(observation: str | None) -> tuple[Item, ...]:
    """An observation as a user message; none for an empty one."""
    return ({"type": "message", "role": "user", "content": observation},) if observation else ()


def _outputs(info: Mapping[str, Any]) -> list[Item]:
    return [
        {"type": "function_call_output", "call_id": o.get("call_id"), "output": o.get("output")}
        for o in info.get("tool_outputs") or ()
        if isinstance(o, Mapping)
    ]
