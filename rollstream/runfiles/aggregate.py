"""`STEM_aggregate_metrics.json`: one object per agent (platform.md B10-B12), with the denominators beside the averages.

Invariant: averages are over the results of the files, each rollout once; `denominators` says of how many each is, and
`completeness` what was asked for and which averages are over less than there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from environments import denominators
from environments.environment import Scores
from environments.metrics import attempts_of, basic_statistics, by_subset, headline, pass_at_k_metrics
from environments.registry import Registry
from rollstream.runfiles.group_metrics import group_metrics
from rollstream.runfiles.readers import TornLine
from rollstream.runfiles.run_record import indented
from rollstream.runfiles.tally import Agent, tally
from schemas.rows import TASK_INDEX
from services.sink.disk import replace_file
from services.sink.paths import RunPaths
from services.sink.stopped import stopped

PER_TASK = "per_task_metrics"
"""What an environment's own metrics may hold for each task: a list of objects with a task index (B12)."""


@dataclass(frozen=True, slots=True)
class Aggregated:
    """The file's content, by agent, and lines that were torn."""

    agents: tuple[dict[str, Any], ...]
    torn: tuple[TornLine, ...]

    @property
    def expected(self) -> int | None:
        """Rollouts that were asked for; None where that is not known of every agent."""
        counts = [a["completeness"]["expected"] for a in self.agents]
        return None if None in counts else sum(counts)

    @property
    def scored(self) -> int:
        return sum(a["completeness"]["scored"] for a in self.agents)


def write_aggregate(paths: RunPaths, registry: Registry | None = None, shards: Sequence[RunPaths] = ()) -> Aggregated:
    """Compute the aggregate of a run's files, or of those of its `shards`, and write it; no results, no file.

    Raises `MalformedLineError` for a file that is broken inside, `SinkStoppedError` when it cannot be written.
    """
    found = aggregate(shards or (paths,), registry)
    try:
        if found.scored:
            paths.aggregate.parent.mkdir(parents=True, exist_ok=True)
            replace_file(paths.aggregate, indented(found.agents))
        else:
            paths.aggregate.unlink(missing_ok=True)
    except OSError as e:
        raise stopped(paths.aggregate, e) from e
    return found


def aggregate(runs: RunPaths | Sequence[RunPaths], registry: Registry | None = None) -> Aggregated:
    """The objects of the aggregate, agents in order of their first result; raises `MalformedLineError`.

    Several runs count as the shards of one. `registry` tells which metrics an agent's environment has (B11); without it, or
    for an agent it does not know, the basic statistics stand alone.
    """
    runs = (runs,) if isinstance(runs, RunPaths) else runs
    agents, torn = tally(runs, registry)
    return Aggregated(tuple(_object(name, a) for name, a in agents.items()), tuple(torn))


def _object(name: str, agent: Agent) -> dict[str, Any]:
    rows = list(agent.rows.values())
    metrics: dict[str, Any] = dict(basic_statistics(rows))
    over = denominators.of_columns(rows)
    tasks = agent.tasks()
    if agent.scores is not None and tasks:
        metrics |= _pass_at_k(tasks, agent.scores)
        over |= _counted(tasks, agent.scores)
    own, note = _own_metrics(agent, tasks)
    notes = [*([note] if note else ()), *_notes(agent)]
    metrics |= own
    groups = _with_per_task(list(group_metrics(agent.rows, agent.expected or {})), metrics.pop(PER_TASK, ()))
    over = {key: n for key, n in over.items() if key in metrics}
    return {
        "agent_ref": {"name": name},
        "agent_metrics": metrics,
        "key_metrics": _key_metrics(metrics, agent),
        "group_level_metrics": groups,
        "denominators": over,
        "completeness": {**_completeness(agent), **_of_tasks(agent, groups), "shifted": _shifted(over, len(rows), len(groups))},
        **({"notes": notes} if notes else {}),
    }


def _own_metrics(agent: Agent, tasks: Sequence[Sequence[Mapping[str, Any]]]) -> tuple[dict[str, Any], str]:
    """What the environment adds. Its code may fail at lines it did not expect: that costs its metrics, not all others."""
    if agent.environment is None or not agent.environment.has_metrics_of_its_own or not tasks:
        return {}, ""
    try:
        return dict(agent.environment.own_metrics(tasks)), ""
    except Exception as e:  # noqa: BLE001
        return {}, f"the environment's own metrics are left out: {type(e).__name__}: {e}"


def _notes(agent: Agent) -> list[str]:
    """What the environment has to say of the averages; its code may fail as above."""
    if agent.environment is None:
        return []
    try:
        return list(agent.environment.notes(list(agent.rows.values())))
    except Exception as e:  # noqa: BLE001
        return [f"the environment's notes are left out: {type(e).__name__}: {e}"]


def _with_per_task(groups: list[dict[str, Any]], own: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The groups with what the environment says of each task."""
    said = {each.get(TASK_INDEX): each for each in own}
    return [{**group, **said.get(group[TASK_INDEX], {})} for group in groups]


def _pass_at_k(tasks: Sequence[Sequence[Mapping[str, Any]]], scores: Scores) -> dict[str, Any]:
    found = _of_scores(tasks, scores)
    return {**found, **by_subset(tasks, scores.subset, lambda some: _of_scores(some, scores))} if scores.subset else found


def _of_scores(tasks: Sequence[Sequence[Mapping[str, Any]]], scores: Scores) -> dict[str, Any]:
    attempts = attempts_of(tasks, scores.scores, scores.answer)
    return pass_at_k_metrics(attempts, answers=scores.answer is not None, sample_std_dev=scores.sample_std_dev)


def _counted(tasks: Sequence[Sequence[Mapping[str, Any]]], scores: Scores) -> dict[str, int]:
    def count(some: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, int]:
        return denominators.of_tasks(attempts_of(some, scores.scores, scores.answer), answers=scores.answer is not None)

    return {**count(tasks), **by_subset(tasks, scores.subset, count)} if scores.subset else count(tasks)


def _shifted(over: Mapping[str, int], rollouts: int, tasks: int) -> list[str]:
    """Averages over fewer rollouts or tasks than have results; those of a subset are over a part on purpose."""
    starts = ("pass@", "majority@")
    return [k for k, n in over.items() if (k.startswith("mean/") and n < rollouts) or (k.startswith(starts) and n < tasks)]


def _key_metrics(metrics: Mapping[str, Any], agent: Agent) -> dict[str, Any]:
    """What the environment chooses, else all means (B12)."""
    scores = agent.scores
    if scores is None or not scores.headline:
        return {k: v for k, v in metrics.items() if k.startswith("mean/")}
    values = (line.get(scores.subset) for line in agent.lines.values()) if scores.subset else ()
    return headline(metrics, scores.headline, sorted({str(v) for v in values if v not in (None, "")}))


def _completeness(agent: Agent) -> dict[str, Any]:
    """B12: the denominator beside the averages. `missing` are rollouts that have neither a result nor a failure."""
    scored, failed = len(agent.rows), sum(agent.failed.values())
    expected = None if agent.expected is None else agent.expected.total()
    missing = None if expected is None else max(0, expected - scored - failed)
    complete = None if expected is None else scored >= expected
    by_class = dict(sorted(agent.failed.items()))
    counts = {"expected": expected, "scored": scored, "failed": by_class, "missing": missing, "masked": agent.masked}
    return {**counts, "complete": complete}


def _of_tasks(agent: Agent, groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Tasks asked for, with a result, and with all of theirs."""
    whole = sum(g["missing_num_rollouts"] == 0 for g in groups) if agent.expected is not None else None
    expected = None if agent.expected is None else len(agent.expected)
    return {"tasks": {"expected": expected, "scored": len(groups), "whole": whole}}
