"""ARC-AGI: 1.0 for exactly the expected grid, else 0.0."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from environments.arc_agi.extraction import Grid, grid_of
from environments.environment import Context, Environment, Response, Reverify, Task, Verdict


class ArcAgiTask(Task):
    """The expected grid, a list of rows. The examples (`train`) and the input are in the prompt and not looked at."""

    train: list[dict[str, Any]] = Field(default_factory=list)
    test_input: Grid = Field(default_factory=list)
    expected_output: Grid = Field(default_factory=list)
    task_id: str | None = None


class ArcAgi(Environment):
    """Rewards a grid that equals the expected one in every cell."""

    Task = ArcAgiTask
    reverify = Reverify.STATELESS

    def verify(self, task: ArcAgiTask, response: Response, state: Any, context: Context) -> Verdict:
        grid = grid_of(response.joined_text())
        reward = float(grid is not None and grid == task.expected_output)
        return Verdict(
            reward, expected_output=task.expected_output, predicted_output=grid, extraction_successful=grid is not None
        )
