"""Distances that have to be looked up. Invariant: the policy sees a distance only through its tool."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import Field

from environments.environment import Context, Environment, Response, Reverify, Seed, Task, Verdict
from environments.tools import Text, tool

_NUMBER = re.compile(r"[0-9]{1,9}")


class RouteTask(Task):
    """`kilometres`: distances by "FROM-TO". `expected_answer`: the right number of kilometres."""

    kilometres: dict[str, int]
    expected_answer: int


class MyEnvironment(Environment):
    """Rewards the right number at the end of the reply with 1.0, any other with 0.0."""

    Task = RouteTask
    reverify = Reverify.STATELESS

    def seed(self, task: RouteTask, context: Context) -> Seed:
        return Seed(tools=tuple(t.schema() for t in self.tools.values()))

    @tool
    def distance(
        self,
        start: Annotated[str, Field(description="Where the road begins.")],
        end: Annotated[str, Field(description="Where it ends.")],
        task: RouteTask,
    ) -> dict[str, int] | Text:
        """Look up the length of the road between two places, in kilometres."""
        for key in (f"{start}-{end}", f"{end}-{start}"):
            if key in task.kilometres:
                return {"kilometres": task.kilometres[key]}
        return Text(f"There is no road from {start} to {end}.")

    def verify(self, task: RouteTask, response: Response, state: Any, context: Context) -> Verdict:
        answer = last_number(response.flat_text())
        return Verdict(float(answer == task.expected_answer), extracted_answer=answer)


def last_number(text: str) -> int | None:
    """The last number of a reply; None when there is none."""
    found = _NUMBER.findall(text)
    return int(found[-1]) if found else None
