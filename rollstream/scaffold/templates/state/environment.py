"""A shopping list that tool calls must bring to what is wanted. Invariant: only what the tools did is scored."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from environments.environment import Context, Environment, Response, Reverify, Seed, State, Task, Verdict
from environments.tools import Text, tool

MAX_ENTRIES = 1_000
"""The list travels in every event of the rollout."""


class ListTask(Task):
    """The list at the start and at the end, as item to count."""

    start: dict[str, int] = Field(default_factory=dict)
    wanted: dict[str, int]


class ShoppingList(State):
    """The list as it stands."""

    entries: dict[str, int] = Field(default_factory=dict)


Item = Annotated[str, Field(min_length=1, max_length=100, description="What to buy.")]
Count = Annotated[int, Field(ge=1, le=1_000, description="How many.")]


class MyEnvironment(Environment):
    """Rewards a list that ends as wanted with 1.0, any other with 0.0."""

    Task = ListTask
    State = ShoppingList
    reverify = Reverify.UNSUPPORTED  # a stored rollout does not hold the list

    def seed(self, task: ListTask, context: Context) -> Seed:
        return Seed(ShoppingList(entries=dict(task.start)), tools=tuple(t.schema() for t in self.tools.values()))

    @tool
    def add(self, item: Item, count: Count, state: ShoppingList) -> Text:
        """Put something on the list, or more of it."""
        if item not in state.entries and len(state.entries) >= MAX_ENTRIES:
            return Text("The list is full.")
        state.entries[item] = state.entries.get(item, 0) + count
        return Text(f"{item}: {state.entries[item]}")

    @tool
    def remove(self, item: Item, state: ShoppingList) -> Text:
        """Strike something off the list."""
        return Text("Struck off." if state.entries.pop(item, None) is not None else f"{item} is not on the list.")

    @tool
    def read(self, state: ShoppingList) -> dict[str, int]:
        """Read the list."""
        return state.entries

    def verify(self, task: ListTask, response: Response, state: ShoppingList, context: Context) -> Verdict:
        return Verdict(float(state.entries == task.wanted), entries=state.entries)
