"""Thinking in several model calls about one task, without tools (agents.md, "LangGraph agents").

Owns what the four agents share: where each reply ends in the conversation, the task's text, and the calls to come. Invariant:
the conversation holds the model's replies alone and each of them once; prompts are put together anew from it, so the memory
is one number for each reply, however long they are.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from environments.agents.agent import Agent, CallModel, Finish, ModelRequest, Step, View
from environments.response import Item, Response
from schemas.errors import DataError

NODE_RUNS = 25
"""Steps of one rollout, each a model call or as many calls at once. The reference's graphs stop with an error after as many
(the default of LangGraph's `recursion_limit`); here the configuration cannot ask for more."""

ANSWER_FORMAT = "Put the final answer, and nothing else, between <answer> and </answer>."


@dataclass(frozen=True)
class Deliberated:
    """A rollout so far: the input that it began with, and the text of every reply in order."""

    given: Sequence[Item]
    replies: Sequence[str]

    @cached_property
    def task(self) -> str:
        """The text of the last user message. Raises `DataError` when there is none: there is nothing to think about."""
        users = [i.get("content") for i in self.given if i.get("role") == "user"]
        plain = [c for c in users if isinstance(c, str)]
        texts = plain or [t for t in map(_parts_text, users) if t]
        if not texts:
            raise DataError("row: responses_create_params.input has no user message with a text")
        return texts[-1]


class Deliberation(Agent):
    """Base of agents that ask the model, read its text, and ask again. Tool calls in replies are never run.

    Subclasses say what to ask next. The final response has the output of all calls in their order.
    """

    @abstractmethod
    def ask(self, so_far: Deliberated) -> Sequence[Sequence[Item]]:
        """The inputs of the next calls, made at once when there are several; none ends the rollout."""

    def aside(self, given: Sequence[Item]) -> Sequence[Item]:
        """Items of the input that go to the front of the final output."""
        return ()

    def next(self, view: View, replies: Sequence[Response]) -> Step:
        items = view.items()
        ends: list[int] = list(view.memory.get("ends") or [len(items)])
        new: list[Item] = []
        for reply in replies:
            new += reply.output
            ends.append(len(items) + len(new))
        everything = [*items, *new]
        given = [*_as_items(view.params.get("input")), *everything[: ends[0]]]
        inputs = self.ask(Deliberated(given, _texts(everything, ends)))
        if inputs:
            return Step(CallModel(tuple(ModelRequest(i) for i in inputs)), new, {"ends": ends})
        aside = self.aside(given)
        return Step(Finish({"output": [*aside, *everything]} if aside else {}), new)


def prompt(text: str) -> list[Item]:
    """An input of one user message."""
    return [{"role": "user", "content": text}]


def numbered(title: str, texts: Sequence[str]) -> str:
    """Texts under numbered headings, such as `Sub-task 1`."""
    return "\n\n".join(f"## {title} {n}\n{text}" for n, text in enumerate(texts, 1))


def _texts(items: Sequence[Item], ends: Sequence[int]) -> list[str]:
    return [Response({"output": items[a:b]}).flat_text() for a, b in pairwise(ends)]


def _as_items(given: Any) -> list[Item]:
    return [{"role": "user", "content": given}] if isinstance(given, str) else list(given or ())


def _parts_text(content: Any) -> str:
    return "\n".join(_part_texts(content)) if isinstance(content, list) else ""


def _part_texts(parts: Sequence[Any]) -> Iterator[str]:
    for part in parts:
        text = part.get("text") if isinstance(part, Mapping) else None
        if isinstance(text, str):
            yield text
