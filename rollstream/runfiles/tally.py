"""What the files of runs say of each agent's rollouts: their numbers, what failed, and what was asked for.

Invariant: each rollout counts once, the first line of it; of its line only what metrics need is kept (about 1 KiB), never its
conversation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from environments.environment import Environment, Scores
from environments.metrics import numeric_columns
from environments.registry import Registry
from rollstream.runfiles.readers import JsonLines, Key, TornLine, failed_tries, key_of
from schemas.errors import DataError
from schemas.rows import AGENT_REF, PARAMS
from services.sink.paths import RunPaths

UNKNOWN_AGENT = "unknown"
"""Name under which lines without an `agent_ref` are counted."""


@dataclass(slots=True)
class Agent:
    """What is known of one agent's rollouts: their columns, and in `lines` what its environment's metrics need of each.

    `expected` has the number of rollouts asked for by task; None where the inputs are not at hand.
    """

    environment: Environment | None = None
    rows: dict[Key, dict[str, float | None]] = field(default_factory=dict)
    lines: dict[Key, dict[str, Any]] = field(default_factory=dict)
    masked: int = 0
    expected: Counter[int] | None = None
    failed: Counter[str] = field(default_factory=Counter)

    @property
    def scores(self) -> Scores | None:
        return self.environment.metrics if self.environment is not None else None

    def asked(self, task: int) -> None:
        """One more rollout of a task was asked for."""
        if self.expected is None:
            self.expected = Counter()
        self.expected[task] += 1

    def tasks(self) -> list[list[dict[str, Any]]]:
        """The lines by task, both in order."""
        found: dict[int, list[dict[str, Any]]] = {}
        for task, rollout in sorted(self.lines):
            found.setdefault(task, []).append(self.lines[task, rollout])
        return list(found.values())


def tally(runs: Sequence[RunPaths], registry: Registry | None) -> tuple[dict[str, Agent], list[TornLine]]:
    """The agents of runs, which count as the shards of one, in order of their first result; and lines that were torn.

    Raises `MalformedLineError`.
    """
    agents: dict[str, Agent] = {}
    done: set[Key] = set()
    torn = [_results(paths, agents, done, registry) for paths in runs]
    for paths in runs:
        torn += _denominators(paths, agents, done)
    if not all(paths.materialized.exists() for paths in runs):  # what was asked for of a part says nothing of the whole
        for agent in agents.values():
            agent.expected = None
    return agents, [t for t in torn if t is not None]


def _results(paths: RunPaths, agents: dict[str, Agent], done: set[Key], registry: Registry | None) -> TornLine | None:
    results = JsonLines(paths.results)
    for line in results if paths.results.exists() else ():
        key = key_of(line)
        if key is None or key in done:
            continue
        done.add(key)
        name = agent_of(line)
        if name not in agents:
            agents[name] = Agent(_environment(registry, name))
        _add(agents[name], key, line)
    return results.torn


def _add(agent: Agent, key: Key, line: dict[str, Any]) -> None:
    agent.rows[key] = numeric_columns(line)
    agent.masked += line.get("mask_sample") is True
    if agent.environment is not None and agent.environment.has_metrics_of_its_own:
        agent.lines[key] = _light(line)
    elif agent.scores is not None:
        wanted = {*agent.scores.scores.values(), agent.scores.answer, agent.scores.subset}
        agent.lines[key] = {name: line[name] for name in wanted if name in line}


def _light(line: Mapping[str, Any]) -> dict[str, Any]:
    """A result line without its heavy fields (B12)."""
    light = {k: v for k, v in line.items() if k not in (PARAMS, "response") and not k.startswith("ng_")}
    response = line.get("response")
    if isinstance(response, Mapping) and "usage" in response:
        light["response"] = {"usage": response["usage"]}
    return light


def _denominators(paths: RunPaths, agents: dict[str, Agent], done: set[Key]) -> Iterable[TornLine | None]:
    """Count what was asked for and what failed; a rollout that has a result did not fail."""
    inputs = JsonLines(paths.materialized)
    owner: dict[Key, str] = {}
    for line in inputs if paths.materialized.exists() else ():
        name, key = agent_of(line), key_of(line)
        agents.setdefault(name, Agent()).asked(key[0] if key else -1)
        if key is not None and key not in done:
            owner[key] = name
    failures = JsonLines(paths.failures)
    for line in failures if paths.failures.exists() else ():
        key = key_of(line)
        if key is not None and line.get(AGENT_REF) is not None:
            owner.setdefault(key, agent_of(line))
    for key, tries in failed_tries(paths.failures).items():
        if key not in done:
            agents.setdefault(owner.get(key, UNKNOWN_AGENT), Agent()).failed[tries.last_class] += 1
    return inputs.torn, failures.torn


def agent_of(line: Mapping[str, Any]) -> str:
    """Name of the agent in a line's `agent_ref`, or `UNKNOWN_AGENT`."""
    ref = line.get(AGENT_REF)
    return str(ref["name"]) if isinstance(ref, Mapping) and "name" in ref else UNKNOWN_AGENT


def _environment(registry: Registry | None, agent: str) -> Environment | None:
    if registry is None:
        return None
    try:
        return registry.binding(None, agent).environment
    except (DataError, ImportError):
        return None
