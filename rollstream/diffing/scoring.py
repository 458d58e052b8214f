"""One scoring, as far as it is compared: from result files or from the log.

Invariant: each rollout is there once, with the reward of its last attempt, or with the class of its failure when it has none.
Of a line about 300 bytes are kept: its reward and its small fields, of a long field a digest.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from sys import intern
from typing import Any, NamedTuple

from rollstream.reverify.lines import StoredLines, agent_of
from rollstream.runfiles.problems import RowProblem
from rollstream.runfiles.readers import TornLine, key_of
from rollstream.runfiles.run_record import read_run_record
from schemas import jsontext
from schemas.rows import AGENT_REF, ATTEMPT_INDEX, PARAMS
from services.sink.lines import CLASS, UNCOUNTED
from services.sink.paths import RunPaths
from services.verifier_worker.line import SCORING

_OTHER = frozenset({PARAMS, AGENT_REF, "response", "reward", "skills_ref"})
_PREFIXES = ("_ng_", "ng_")
_SHORT = 200
"""Characters of a field that is kept as it is."""


class Rollout(NamedTuple):
    """Who a rollout is, over all scorings. `run` is empty where it is not known."""

    run: str
    task: int
    rollout: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A rollout in a scoring. `reward` is None when it has none, `failure` is the class then."""

    environment: str
    reward: float | None
    failure: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    attempt: int = 0
    source: str = ""


@dataclass(slots=True)
class Scoring:
    """A scoring called `name`. `variants` are environments by agent, for lines that name no other than their agent.

    `verifiers` are those that its lines name, with their versions.
    """

    name: str
    variants: Mapping[str, str] = field(default_factory=dict)
    entries: dict[Rollout, Entry] = field(default_factory=dict)
    verifiers: set[str] = field(default_factory=set)
    problems: list[RowProblem] = field(default_factory=list)
    torn: list[TornLine] = field(default_factory=list)

    @property
    def runs(self) -> set[str]:
        """The runs whose rollouts it holds, as far as they are known."""
        return {rollout.run for rollout in self.entries if rollout.run}

    def add(self, line: dict[str, Any], run: str, environment: str = "") -> bool:
        """Take a line of results or failures; whether it is one. A repetition of what has ended already is passed over."""
        key = key_of(line)
        reward = line.get("reward")
        failed = CLASS in line
        if key is None or not (failed or (isinstance(reward, int | float) and math.isfinite(reward))):
            return False
        if line.get("outcome") in UNCOUNTED:
            return True
        entry = self._entry(line, environment, None if failed else float(reward or 0.0))
        rollout = Rollout(intern(_run_of(line) or run), *key)
        before = self.entries.get(rollout)
        if before is None or (entry.reward is not None, entry.attempt) > (before.reward is not None, before.attempt):
            self.entries[rollout] = entry
        return True

    def _entry(self, line: dict[str, Any], environment: str, reward: float | None) -> Entry:
        stamp = line.get(SCORING)
        own: Mapping[str, Any] = stamp if isinstance(stamp, Mapping) else {}
        if own:
            self.verifiers.add(f"{own.get('verifier')} {own.get('version')}")
        attempt, agent = line.get(ATTEMPT_INDEX, 0), agent_of(line)
        return Entry(
            intern(str(own.get("environment") or environment or self.variants.get(agent, agent) or "unknown")),
            reward,
            "" if reward is not None else str(line.get(CLASS)),
            {} if reward is None else _fields(line),
            attempt if isinstance(attempt, int) else 0,
            str(own.get("source", "")),
        )


def read_files(found: Scoring, path: Path) -> Scoring:
    """`found`, with what a results file and its sidecar hold, or those of a directory; raises `OSError`."""
    for results in _results_in(path) if path.is_dir() else [RunPaths.of(path).results]:
        paths = RunPaths(results)
        record = read_run_record(paths.run)
        run = record.run_id if record is not None and "reverify" not in record.arguments else ""
        for file in (paths.results, paths.failures):
            if file is paths.results or file.exists():
                _read(found, file, run)
    return found


def _read(found: Scoring, path: Path, run: str) -> None:
    lines = StoredLines(path)
    for number, _, _, line in lines:
        # A failure without a rollout is a row or record that was refused before it had an identity.
        if not found.add(line, run) and CLASS not in line:
            lines.refuse(number, "neither a result (rollout and finite reward) nor a failure")
    found.problems += lines.problems
    found.torn += [lines.torn] if lines.torn is not None else []


def _results_in(folder: Path) -> list[Path]:
    beside = ("_failures.jsonl", "_materialized_inputs.jsonl", "_reward_profiling.jsonl")
    return [path for path in sorted(folder.glob("*.jsonl")) if not path.name.endswith(beside)]


def _run_of(line: dict[str, Any]) -> str:
    """The run that a line names: a result in its stamp, a failure by itself."""
    stamp = line.get(SCORING)
    run = stamp.get("run_id") if isinstance(stamp, Mapping) else line.get("run_id") if CLASS in line else None
    return run if isinstance(run, str) else ""


def _fields(line: dict[str, Any]) -> dict[str, Any]:
    """What the verifier and the row say beside the reward, long values by their digests."""
    return {intern(k): _short(v) for k, v in line.items() if k not in _OTHER and not k.startswith(_PREFIXES)}


def _short(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= _SHORT):
        return value
    text = jsontext.dumps(value)
    if len(text) <= _SHORT:
        return value
    return f"{len(text):,} bytes, sha256 {hashlib.sha256(text).hexdigest()[:12]}"
