"""Checks of what an environment does: examples, whole rollouts, the same twice, state, time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from environments.environment import Environment
from environments.hostile import MEGABYTES
from environments.testing import EnvironmentHarness, function_call, message, response
from environments.verdict import Verdict
from rollstream.checking.findings import Problem, Skip
from rollstream.checking.subject import Subject, outcome, scored
from schemas.errors import InfrastructureError, RolloutError

EXAMPLES = 5
"""Tasks of its own that an environment brings, so that it can be tried."""

MEGABYTE_S = 5.0
"""CPU seconds for scoring an answer of a megabyte. A verifier that is linear takes a fraction of one; a quadratic one hours."""

PLAYED = 3
"""Examples that are played to their end; the others are only begun."""


def check_examples(subject: Subject, said: list[str]) -> None:
    """Five or more rows, each accepted as a run would, of an agent of this environment, and begun without an error."""
    rows = subject.rows
    if len(rows) < EXAMPLES:
        raise Problem(f"data/example.jsonl has {len(rows)} tasks; {EXAMPLES} are the least")
    own = {b.agent_name for b in subject.bindings}
    for number, row in enumerate(rows, 1):
        try:
            agent = subject.binding_of(row).agent_name
            if agent not in own:
                raise Problem(f"data/example.jsonl:{number}: its agent {agent} belongs to another environment")
            subject.seeded(row)
        except InfrastructureError:
            raise
        except RolloutError as e:
            raise Problem(f"data/example.jsonl:{number}: {e}") from e
    said.append(f"{len(rows)} tasks")


def check_rollouts(subject: Subject, said: list[str]) -> None:
    """Whole rollouts against the scripted policy, and their rewards within the range of the manifest."""
    rewards = []
    for row in subject.rows[:PLAYED]:
        harness, final = subject.played(row)
        for verdict in scored(harness, final):
            within_range(subject, verdict)
            rewards.append(verdict.reward)
    said.append("rewards " + " ".join(f"{r:g}" for r in rewards))


def within_range(subject: Subject, verdict: Verdict) -> None:
    """Raise `Problem` for a reward outside the range that the manifest states."""
    reward = subject.entry.manifest.reward
    if reward is not None and not reward.range[0] <= verdict.reward <= reward.range[1]:
        raise Problem(f"a reward of {verdict.reward:g}; config.yaml says {reward.range[0]:g} to {reward.range[1]:g}")


def check_determinism(subject: Subject, said: list[str]) -> None:
    """The same answer, scored in two new rollouts with the same random numbers, gives the same verdict."""
    row = subject.rows[0]
    _, final = subject.played(row)
    answers = {"the scripted policy's answer": final, "an empty answer": response(), "a text": response("Answer: A")}
    for what, answer in answers.items():
        first, second = (outcome(subject.seeded(row), answer) for _ in range(2))
        if first != second:
            raise Problem(f"{what}, scored twice: {_first_difference(first, second)}")
    said.append(f"{len(answers)} answers twice")


def check_state(subject: Subject, said: list[str]) -> None:
    """The state is the same after its way through JSON, as an event carries it."""
    environment = subject.main.environment
    if environment.State is None:
        raise Skip("no state")
    for row in subject.rows[:PLAYED]:
        harness, _ = subject.played(row)
        text = harness.state_json
        again = None if harness.state is None else harness.state.model_dump_json()
        if text != again:
            raise Problem(
                f"{environment.State.__name__} is another one after JSON: {_first_difference(text or '', again or '')}"
            )
        said[:] = [f"{environment.State.__name__}, {len(text or ''):,} bytes at the end of a rollout"]


def check_time(subject: Subject, said: list[str]) -> None:
    """Answers of a megabyte are scored, or refused, within `MEGABYTE_S` of CPU time."""
    slowest, shape = 0.0, ""
    for name in subject.shapes:
        harness = subject.seeded(subject.rows[0])
        for answer in _answers(harness, MEGABYTES[name]):
            for act in _acts(harness, answer):
                spent = _cpu_of(act)
                if spent > slowest:
                    slowest, shape = spent, name
    if slowest > MEGABYTE_S:
        raise Problem(f"a megabyte of {shape} took {slowest:.1f} s of CPU; {MEGABYTE_S:g} are the most")
    said.append(f"a megabyte takes at most {1_000 * slowest:,.0f} ms of CPU ({shape or 'all alike'})")


def _answers(harness: EnvironmentHarness, text: str) -> list[dict[str, Any]]:
    """`text` as a message, and as the arguments of a call."""
    tools = harness.row["responses_create_params"].get("tools") or [t.schema() for t in harness.environment.tools.values()]
    name = next((t["name"] for t in tools if isinstance(t.get("name"), str)), None)
    called = [response(function_call(name, text), message("done"))] if name else []
    return [response(text), *called]


def _acts(harness: EnvironmentHarness, answer: Mapping[str, Any]) -> list[Callable[[], Any]]:
    """What the environment does with an answer: move, where it is a partner, and score."""
    partner = type(harness.environment).respond is not Environment.respond
    return [*([lambda: harness.respond(answer)] if partner else []), lambda: scored(harness, answer)]


def _cpu_of(act: Callable[[], Any]) -> float:
    """CPU seconds of this process; programs in the sandbox have limits of their own."""
    started = time.process_time()
    try:
        act()
    except InfrastructureError:
        raise
    except RolloutError:
        pass  # a megabyte may be refused, but at once
    return time.process_time() - started


def _first_difference(a: str, b: str) -> str:
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    start = max(0, at - 30)
    return f"…{a[start : at + 50]}… then …{b[start : at + 50]}…"
