"""Tasks and typed texts, one at a time.

Owns what a line at the prompt means. Invariant: a task is a whole rollout, scored as on the workers; a typed text begins or
continues a conversation over one episode, and is scored only where the environment can make a task of it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from environments.dispatch import read_task
from environments.environment import Environment
from environments.registry import Binding
from environments.response import Item
from environments.tools import with_tools
from rollstream.chat.screen import Screen
from schemas import jsontext
from schemas.errors import DataError, RolloutError
from schemas.identity import RolloutRef
from schemas.rows import PARAMS
from services.direct.episode import Episode
from services.direct.playing import Play
from services.direct.rollout import Rollout
from services.direct.services import Services

RUN = "chat"

_SHOWN = 100
"""Characters of a task in the list."""

HELP = "a number runs that task; other text talks to the agent; /tasks lists, /new begins a new conversation, /quit ends"

Wait = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine to its end, on the loop of the services."""


@dataclass(slots=True)
class _Conversation:
    """What typed texts have led to: the episode, whether it can be scored (`scores`), and the items so far."""

    episode: Episode
    params: Mapping[str, Any]
    scores: bool
    items: list[Item] = field(default_factory=list)


@dataclass(slots=True)
class Talk:
    """A session at the prompt with the agent of `binding`; `rows` are its example tasks. `failed` counts what had no score."""

    services: Services
    binding: Binding
    rows: Sequence[Mapping[str, Any]]
    screen: Screen
    wait: Wait
    failed: int = 0
    _count: int = 0
    _conversation: _Conversation | None = None

    def line(self, text: str) -> bool:
        """Do what a line says; False when it ends the session."""
        match text.strip():
            case "":
                pass
            case "/quit" | "/q" | "/exit":
                return False
            case "/help" | "/?":
                self.screen.note(HELP)
            case "/tasks":
                self.list_tasks()
            case "/new":
                self.end()
            case number if number.isdecimal() and len(number) < 10:  # noqa: PLR2004 - no list is longer
                self.task(int(number))
            case unknown if unknown.startswith("/"):
                self.screen.note(f"no command {unknown.split()[0]}: {HELP}")
            case said:
                self.say(said)
        return True

    def list_tasks(self) -> None:
        """The example tasks, a line each."""
        for index, row in enumerate(self.rows):
            given = row[PARAMS].get("input")
            last = given if isinstance(given, str) else given[-1].get("content", "") if given else ""
            self.screen.note(f"{index}: {' '.join(str(last).split())[:_SHOWN]}")

    def task(self, index: int) -> None:
        """Run one task from seed to score."""
        if index >= len(self.rows):
            self.screen.note(f"there is no task {index}: there are {len(self.rows)}, from 0")
            self.failed += 1
            return
        row = self.rows[index]
        self.screen.items(input_of(row[PARAMS]))
        rollout = Rollout(self.services, self.binding, self._ref(index), row)
        self._tried(lambda: self.screen.verdict(self.wait(rollout.run(self.screen)).verdict))

    def say(self, text: str) -> None:
        """Talk to the agent: begin a conversation, or continue it."""
        self._tried(lambda: self._say(text))

    def end(self) -> None:
        """End the conversation, if there is one."""
        conversation, self._conversation = self._conversation, None
        if conversation is not None:
            self.wait(conversation.episode.forget())

    def _say(self, text: str) -> None:
        if self._conversation is None:
            self._conversation = self._begun(text)
        conversation = self._conversation
        asked = [*conversation.items, {"role": "user", "content": text}]
        params = {**conversation.params, "input": asked}
        played = self.wait(Play(self.services, conversation.episode, params, (), self.screen).run())
        response = jsontext.loads_lenient(played.response)
        conversation.items = [*asked, *response["output"]]
        if conversation.scores:
            row = {PARAMS: params}
            self.screen.verdict(self.wait(conversation.episode.verify(row, played.response)))
        else:
            self.screen.note("not scored: what was typed is not a task of this environment")

    def _begun(self, text: str) -> _Conversation:
        environment = self.binding.environment
        params: Mapping[str, Any] = opening(self.rows, environment)
        row = {PARAMS: {**params, "input": [*params["input"], {"role": "user", "content": text}]}}
        scores = fits(environment, row)
        episode = Episode(self.services, self.binding, self._ref(0), row if scores else None)
        items: list[Item] = list(params["input"])
        if scores:
            seed = self.wait(episode.seed())
            items += seed.items
            params = with_tools(params, seed.tools)
        return _Conversation(episode, params, scores, items)

    def _tried(self, work: Callable[[], None]) -> None:
        try:
            work()
        except RolloutError as e:
            self.failed += 1
            self.screen.failure(e)

    def _ref(self, index: int) -> RolloutRef:
        self._count += 1
        return RolloutRef(RUN, f"task-{index}", index, 0, explicit_id=f"chat-{self._count}-{index}")


def input_of(params: Mapping[str, Any]) -> list[Item]:
    """The input as items."""
    given = params.get("input") or []
    return [{"role": "user", "content": given}] if isinstance(given, str) else list(given)


def opening(rows: Sequence[Mapping[str, Any]], environment: Environment) -> dict[str, Any]:
    """Request parameters for a typed text: what the first example says to the model before any user, and its tools."""
    params = dict(rows[0][PARAMS]) if rows else {}
    first = [i for i in input_of(params) if i.get("role") in {"system", "developer"}]
    tools = params.get("tools") or [tool.schema() for tool in environment.tools.values()]
    return {**params, "input": first, "tools": tools}


def fits(environment: Environment, row: Mapping[str, Any]) -> bool:
    """Whether the environment can make a task of a row with nothing but request parameters."""
    try:
        read_task(environment, row)
    except DataError:
        return False
    return True
