"""A partner that has a number in mind. Invariant: the state holds what was guessed, so any worker can answer any turn."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from environments.common.gymnasium import Episode, GymnasiumEnvironment, Reset, Stepped
from environments.environment import Context, Response, Reverify, Task

MAX_DIGITS = 9


class NumberTask(Task):
    """The partner's number, from 1 to `highest`."""

    highest: int = Field(ge=1, le=10**MAX_DIGITS - 1)
    number: int = Field(ge=1)


class MyEnvironment(GymnasiumEnvironment):
    """Rewards the right guess with 1 over the number of guesses it took."""

    Task = NumberTask
    reverify = Reverify.UNSUPPORTED  # a stored rollout does not hold the rewards of the steps

    async def reset(self, task: NumberTask, episode: Episode, context: Context) -> Reset:
        return Reset(f"I have a number from 1 to {task.highest} in mind.")

    async def step(
        self, task: NumberTask, response: Response, episode: Any, context: Context, request_id: str | None
    ) -> Stepped:
        guess = number_in(response.flat_text())
        if guess is None:
            return Stepped("That is no number. Guess again.")
        if guess == task.number:
            return Stepped(reward=1.0 / (episode.steps + 1), terminated=True)
        return Stepped("My number is higher." if guess < task.number else "My number is lower.")


def number_in(text: str) -> int | None:
    """The number that a reply consists of; None for any other reply."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS else None
