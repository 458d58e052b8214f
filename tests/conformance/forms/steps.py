"""`steps`: turns of calls, each with the environment's move, the reward it gave and whether it ended the rollout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from environments.testing import EnvironmentHarness, function_call, response
from tests.conformance.cases import Case
from tests.conformance.comparing import differences
from tests.conformance.forms.form import Form

_KNOWN = frozenset({"calls", "observations", "reward", "done", "error"})


class Steps(Form):
    """Lets the environment move and compares the moves. The reward of a step is what the state's `reward` grew by.

    Where the reference's step raises, ours answers and goes on: one observation that says what was wrong, no reward.
    """

    keys = frozenset({"steps"})

    def obstacle(self, case: Case) -> str | None:
        unknown = sorted({k for step in case.data.get("steps") or () for k in step} - _KNOWN)
        return f"steps with {', '.join(unknown)}" if unknown else None

    def play(self, case: Case, harness: EnvironmentHarness) -> list[str]:
        found = []
        for number, step in enumerate(case.data.get("steps") or ()):
            calls = [function_call(c["name"], c["arguments"], call_id=f"c{number}_{i}") for i, c in enumerate(step["calls"])]
            before = harness.state.reward
            move = harness.respond(response(*calls))
            result = {"observations": move.items, "done": move.done, "reward": harness.state.reward - before}
            found += [f"steps.{number}: {line}" for line in _wrong(step, result)]
        return found


def _wrong(step: Mapping[str, Any], result: Mapping[str, Any]) -> list[str]:
    if step.get("error") != "step_exception":
        return differences({k: v for k, v in step.items() if k != "calls"}, result)
    told = [i for i in result["observations"] if i.get("output")]
    wrong = [] if len(told) == len(step["calls"]) else [f"expected an answer to each call, found {result['observations']!r}"]
    return wrong + differences({"done": False, "reward": 0.0}, result)
