"""A counter that lives as long as the rollout. Invariant: only what the tools really did to the counter is scored."""

from __future__ import annotations

from environments.environment import Context, Environment, Response, Reverify, Seed, State, Task, Verdict
from environments.tools import tool

MAX_MAGNITUDE = 10**4000
"""Python and pydantic read integers of up to 4,300 digits; a counter beyond that could not be read back from the event."""


class CounterTask(Task):
    """Where the counter starts and where it must end; integers are read leniently ("3", 3.0 and true are integers)."""

    initial_count: int
    expected_count: int


class Counter(State):
    """The counter; None in a rollout that was never seeded."""

    counter: int | None = None


class ExampleSessionStateMgmt(Environment):
    """Rewards a rollout whose counter ends at the target with 1.0, any other with 0.0."""

    Task = CounterTask
    State = Counter
    reverify = Reverify.UNSUPPORTED  # a stored rollout does not hold the counter

    def seed(self, task: CounterTask, context: Context) -> Seed:
        return Seed(Counter(counter=task.initial_count))

    @tool
    def increment_counter(self, count: int, state: Counter) -> dict[str, bool]:
        """Add a number, which may be negative, to the counter."""
        counter = (state.counter or 0) + count
        if abs(counter) > MAX_MAGNITUDE:
            raise OverflowError("the counter has more than 4,000 digits")
        state.counter = counter
        return {"success": True}

    @tool
    def get_counter_value(self, state: Counter) -> dict[str, int]:
        """Read the counter."""
        return {"count": state.counter or 0}

    def verify(self, task: CounterTask, response: Response, state: Counter, context: Context) -> Verdict:
        return Verdict(1.0 if state.counter == task.expected_count else 0.0)
