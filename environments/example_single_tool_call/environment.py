"""One weather tool with a canned reply; a smoke test of the tool path, not training data."""

from __future__ import annotations

from typing import Any

from environments.environment import Context, Environment, Response, Reverify, Verdict
from environments.tools import tool


class ExampleSingleToolCall(Environment):
    """Rewards every valid rollout with 1.0."""

    reverify = Reverify.STATELESS

    @tool
    def get_weather(self, city: str) -> dict[str, str]:
        """Get the weather in a city."""
        return {"city": city, "weather_description": f"The weather in {city} is cold."}

    def verify(self, task: Any, response: Response, state: Any, context: Context) -> Verdict:
        return Verdict(1.0)
