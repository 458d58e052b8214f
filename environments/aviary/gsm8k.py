"""GSM8k with a calculator (aviary.md, "Tools and scoring: GSM8k")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from environments.aviary.calculator import calculate
from environments.aviary.episode import Call, Outcome, answer, function_tool, misfit, user

CALCULATOR = function_tool(
    "calculator", "Work out an arithmetic expression.", {"expr": "Numbers with + - * / // % **, and abs, round, min, max, sum."}
)
SUBMIT = function_tool("submit_answer", "Give the final answer, which ends the task.", {"answer": "A plain number."})
TOOLS = (CALCULATOR, SUBMIT)
_BY_NAME = {t["name"]: t for t in TOOLS}

TOLERANCE = 1e-4
PENALTY = -1.0


def step(calls: Sequence[Call], target: float, misfit_reward: float) -> Outcome:
    """All calls of known tools in order, then the unknown ones; rewards add up, and any of them may end the episode."""
    if not calls:
        return Outcome((user("Must call one of the provided tools (calculator or submit_answer)."),), PENALTY, done=True)
    known = [c for c in calls if c.name in _BY_NAME]
    unknown = [c for c in calls if c.name not in _BY_NAME]
    found = [_call(c, target, misfit_reward) for c in known]
    penalty = 0.0 if known else PENALTY * len(unknown)
    items = [*(i for o in found for i in o.observations), *(answer(c, "") for c in unknown)]
    return Outcome(tuple(items), sum(o.reward for o in found) + penalty, not known or any(o.done for o in found))


def is_right(value: float, target: float) -> bool:
    """Within the tolerance of the page, relative to the target."""
    return abs(value - target) / (abs(target) + TOLERANCE) < TOLERANCE


def _call(call: Call, target: float, misfit_reward: float) -> Outcome:
    wrong = misfit(call, _BY_NAME[call.name])
    if wrong:
        return Outcome((answer(call, wrong),), misfit_reward)
    if call.name == "calculator":
        return _calculator(call)
    return _submitted(call, call.arguments["answer"], target)


def _calculator(call: Call) -> Outcome:
    try:
        return Outcome((answer(call, calculate(call.arguments["expr"])),))
    except Exception as e:  # noqa: BLE001 - every error of an expression is text that ends the episode
        return Outcome((answer(call, f"Error using calculator: {e!r}."),), PENALTY, done=True)


def _submitted(call: Call, given: Any, target: float) -> Outcome:
    try:
        right = is_right(float(given), target)
    except (TypeError, ValueError, OverflowError):
        return Outcome((answer(call, "False"),), PENALTY, done=True)
    return Outcome((answer(call, str(right)),), float(right), done=True)
