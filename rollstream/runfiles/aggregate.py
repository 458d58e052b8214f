"""`STEM_aggregate_metrics.json`: one object per agent (platform.md B10-B12), with the denominators beside the averages.

Invariant: averages are over the results of the file, each rollout once, and `completeness` says of how many they are: a
metric over less than was asked for says so. Reads line by line; what is kept of a rollout is its numbers, its scores
and its answer (about 1 KiB), never its conversation.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from environments.environment import Scores
from environments.metrics import attempts_of, basic_statistics, by_subset, headline, numeric_columns, pass_at_k_metrics
from environments.registry import Registry
from rollstream.runfiles.readers import JsonLines, Key, TornLine, failed_tries, key_of
from rollstream.runfiles.run_record import indented
from schemas.errors import DataError
from schemas.rows import AGENT_REF
from services.sink.disk import replace_file
from services.sink.paths import RunPaths
from services.sink.stopped import stopped

UNKNOWN_AGENT = "unknown"
"""Name under which lines without an `agent_ref` are counted."""


@dataclass(slots=True)
class Agent:
    """What is known of one agent's rollouts. `lines` holds of each what its environment's scores need."""

    rows: list[dict[str, float | None]] = field(default_factory=list)
    lines: dict[Key, dict[str, Any]] = field(default_factory=dict)
    masked: int = 0
    expected: int | None = None
    failed: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Aggregated:
    """The file's content, by agent, and lines that were torn."""

    agents: tuple[dict[str, Any], ...]
    torn: tuple[TornLine, ...]


def write_aggregate(paths: RunPaths, registry: Registry | None = None) -> Aggregated:
    """Compute the aggregate of a run's files and write it; no results, no file.

    Raises `MalformedLineError` for a file that is broken inside, `SinkStoppedError` when it cannot be written.
    """
    found = aggregate(paths, registry)
    try:
        if any(a["completeness"]["scored"] for a in found.agents):
            replace_file(paths.aggregate, indented(found.agents))
        else:
            paths.aggregate.unlink(missing_ok=True)
    except OSError as e:
        raise stopped(paths.aggregate, e) from e
    return found


def aggregate(paths: RunPaths, registry: Registry | None = None) -> Aggregated:
    """The objects of the aggregate, agents in order of their first result; raises `MalformedLineError`.

    `registry` tells which scores an agent's environment has (B11); without it, or for an agent it does not know, the
    basic statistics stand alone.
    """
    agents: defaultdict[str, Agent] = defaultdict(Agent)
    scores: dict[str, Scores | None] = {}
    results = JsonLines(paths.results)
    done: set[Key] = set()
    for line in results if paths.results.exists() else ():
        key = key_of(line)
        if key is None or key in done:
            continue
        done.add(key)
        name = _agent(line)
        if name not in scores:
            scores[name] = _scores(registry, name)
        _add(agents[name], key, line, scores[name])
    torn = [results.torn, *_denominators(paths, agents, done)]
    objects = tuple(_object(name, a, scores.get(name)) for name, a in agents.items())
    return Aggregated(objects, tuple(t for t in torn if t is not None))


def _add(agent: Agent, key: Key, line: dict[str, Any], scores: Scores | None) -> None:
    agent.rows.append(numeric_columns(line))
    wanted = {*scores.scores.values(), scores.answer, scores.subset} if scores is not None else ()
    agent.lines[key] = {name: line[name] for name in wanted if name in line}
    agent.masked += line.get("mask_sample") is True


def _denominators(paths: RunPaths, agents: defaultdict[str, Agent], done: set[Key]) -> Iterable[TornLine | None]:
    """Count what was asked for and what failed; a rollout that has a result did not fail."""
    inputs = JsonLines(paths.materialized)
    owner: dict[Key, str] = {}
    for line in inputs if paths.materialized.exists() else ():
        name, key = _agent(line), key_of(line)
        agents[name].expected = (agents[name].expected or 0) + 1
        if key is not None and key not in done:
            owner[key] = name
    failures = JsonLines(paths.failures)
    for line in failures if paths.failures.exists() else ():
        key = key_of(line)
        if key is not None and line.get(AGENT_REF) is not None:
            owner.setdefault(key, _agent(line))
    for key, tries in failed_tries(paths.failures).items():
        if key not in done:
            agents[owner.get(key, UNKNOWN_AGENT)].failed[tries.last_class] += 1
    return inputs.torn, failures.torn


def _object(name: str, agent: Agent, scores: Scores | None) -> dict[str, Any]:
    metrics: dict[str, Any] = dict(basic_statistics(agent.rows))
    if scores is not None and agent.lines:
        metrics |= _pass_at_k(agent.lines, scores)
    return {
        "agent_ref": {"name": name},
        "agent_metrics": metrics,
        "key_metrics": _key_metrics(metrics, agent, scores),
        "completeness": _completeness(agent),
    }


def _pass_at_k(lines: Mapping[Key, dict[str, Any]], scores: Scores) -> dict[str, Any]:
    tasks: dict[int, list[dict[str, Any]]] = {}
    for task, rollout in sorted(lines):
        tasks.setdefault(task, []).append(lines[task, rollout])
    members = list(tasks.values())
    found = _of_scores(members, scores)
    return {**found, **by_subset(members, scores.subset, lambda some: _of_scores(some, scores))} if scores.subset else found


def _of_scores(tasks: Sequence[Sequence[Mapping[str, Any]]], scores: Scores) -> dict[str, Any]:
    attempts = attempts_of(tasks, scores.scores, scores.answer)
    return pass_at_k_metrics(attempts, answers=scores.answer is not None, sample_std_dev=scores.sample_std_dev)


def _key_metrics(metrics: Mapping[str, Any], agent: Agent, scores: Scores | None) -> dict[str, Any]:
    """What the environment chooses, else all means (B12)."""
    if scores is None or not scores.headline:
        return {k: v for k, v in metrics.items() if k.startswith("mean/")}
    values = (line.get(scores.subset) for line in agent.lines.values()) if scores.subset else ()
    return headline(metrics, scores.headline, sorted({str(v) for v in values if v not in (None, "")}))


def _completeness(agent: Agent) -> dict[str, Any]:
    """B12: the denominator beside the averages. `missing` are rollouts that have neither a result nor a failure."""
    scored, failed = len(agent.rows), sum(agent.failed.values())
    missing = None if agent.expected is None else max(0, agent.expected - scored - failed)
    complete = None if agent.expected is None else scored >= agent.expected
    by_class = dict(sorted(agent.failed.items()))
    counts = {"expected": agent.expected, "scored": scored, "failed": by_class, "missing": missing, "masked": agent.masked}
    return {**counts, "complete": complete}


def _agent(line: Mapping[str, Any]) -> str:
    ref = line.get(AGENT_REF)
    return str(ref["name"]) if isinstance(ref, Mapping) and "name" in ref else UNKNOWN_AGENT


def _scores(registry: Registry | None, agent: str) -> Scores | None:
    if registry is None:
        return None
    try:
        return registry.binding(None, agent).environment.metrics
    except (DataError, ImportError):
        return None
