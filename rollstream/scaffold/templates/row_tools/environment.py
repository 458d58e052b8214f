"""The right calls of tools that the row offers. Invariant: nothing is executed; what the policy calls is its answer."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from environments.environment import Context, Environment, Response, Reverify, Task, Verdict

MAX_CALLS = 1_000
"""Calls that are compared. More than a few are wrong in any case, and each is looked for in all that are expected."""


class Call(BaseModel):
    """One call: the tool's name and its arguments."""

    name: str
    arguments: dict[str, Any]


class CallsTask(Task):
    """`expected_calls`: in any order, each as often as it is listed."""

    expected_calls: list[Call]


class MyEnvironment(Environment):
    """Rewards exactly the expected calls with 1.0, anything else with 0.0."""

    Task = CallsTask
    reverify = Reverify.STATELESS

    def verify(self, task: CallsTask, response: Response, state: Any, context: Context) -> Verdict:
        made = response.function_calls()
        missing = [(c.name, c.arguments) for c in task.expected_calls]
        wrong = max(0, len(made) - MAX_CALLS)
        for item in made[:MAX_CALLS]:
            call = (item.get("name"), arguments_of(item.get("arguments")))
            if call in missing:
                missing.remove(call)
            else:
                wrong += 1
        return Verdict(float(not missing and not wrong), missing_calls=len(missing), wrong_calls=wrong)


def arguments_of(text: Any) -> Any:
    """The arguments in a call's text; None when they are not JSON."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None
