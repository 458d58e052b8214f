"""Words that an answer must contain. Invariant: the time is linear in the answer's length for each required word."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from environments.environment import Context, Environment, Response, Reverify, Task, Verdict


class WordsTask(Task):
    """`required`: words, found without regard to case."""

    required: list[str] = Field(min_length=1, max_length=100)


class MyEnvironment(Environment):
    """Rewards an answer with the share of the required words that it contains."""

    Task = WordsTask
    reverify = Reverify.STATELESS

    def verify(self, task: WordsTask, response: Response, state: Any, context: Context) -> Verdict:
        text = response.flat_text().casefold()
        missing = [word for word in task.required if word.casefold() not in text]
        return Verdict(1.0 - len(missing) / len(task.required), missing_words=missing)
