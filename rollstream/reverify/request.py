"""What is to be re-verified from files, and what came of it (platform.md C2).

Invariant: a request that contradicts itself is refused before any file is looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rollstream.reverify.guard import UNSAFE, ReverifyError
from rollstream.reverify.output import Existing
from rollstream.runfiles.problems import RowProblem
from rollstream.runfiles.readers import TornLine
from rollstream.runfiles.run_record import read_run_record
from services.sink.paths import RunPaths


@dataclass(frozen=True, slots=True)
class FilesRequest:
    """The options of C2. `limit` 0: all; `concurrency` 0: as the settings say. `environment` scores every row.

    `inputs` defaults to the materialized file beside the rollouts, else to the one that their run record names.
    """

    rollouts: Path
    output: Path
    inputs: Path | None = None
    environment: str = ""
    concurrency: int = 0
    limit: int = 0
    force: bool = False
    existing: Existing = Existing.REFUSE
    disable_aggregation: bool = False
    judge_failed_only: bool = False
    reuse_judge_calls: bool = False
    strict: bool = False
    scoring: str = ""

    def check(self) -> None:
        """Raises `ReverifyError` when the options do not go together."""
        if self.existing is Existing.APPEND and not self.judge_failed_only:
            raise ReverifyError("--append adds recovered rollouts to a results file: it goes with --judge-failed-only alone")
        files = {RunPaths.of(self.rollouts).results.resolve(), RunPaths.of(self.rollouts).failures.resolve()}
        files |= {self.inputs.resolve()} if self.inputs is not None else set()
        if RunPaths.of(self.output).results.resolve() in files and self.existing is not Existing.APPEND:
            raise ReverifyError(f"--output {self.output} is what is re-verified; name another file")

    @property
    def stored(self) -> RunPaths:
        """The files of the stored run."""
        return RunPaths.of(self.rollouts)

    def inputs_path(self) -> Path:
        """The materialized file; raises `ReverifyError` when there is none."""
        if self.inputs is not None:
            return self.inputs
        beside = self.stored.materialized
        record = read_run_record(self.stored.run)
        named = Path(str(record.arguments["inputs"])) if record is not None and record.arguments.get("inputs") else beside
        found = next((path for path in (beside, named) if path.exists()), None)
        if found is None:
            raise ReverifyError(f"{beside} does not exist; name the rows that the rollouts were made from with --inputs")
        return found

    def paths(self, *, safe: bool) -> RunPaths:
        """The files to write (C3: with a prefix when it is not safe)."""
        results = RunPaths.of(self.output).results
        return RunPaths(results if safe else results.with_name(UNSAFE + results.name))


@dataclass(slots=True)
class Tally:
    """What came of the rollouts of one verifier. `before` and `after` are the sums of rewards of those that had one before."""

    verifier: str
    version: str
    scored: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    same: int = 0
    up: int = 0
    down: int = 0
    before: float = 0.0
    after: float = 0.0
    rewards: float = 0.0

    def add(self, reward: float | None, failure: str, before: float | None) -> None:
        """Count a rollout: its new reward or class of failure, and the reward that it had."""
        if reward is None:
            self.failed[failure] += 1
            return
        self.scored += 1
        self.rewards += reward
        if before is not None:
            self.before += before
            self.after += reward
            self.same += reward == before
            self.up += reward > before
            self.down += reward < before

    def as_json(self) -> dict[str, Any]:
        """For programs; `mean_before` and `mean_after` are over the rollouts that have both rewards."""
        both = self.same + self.up + self.down
        means = {"mean_before": self.before / both, "mean_after": self.after / both} if both else {}
        own = {"verifier": self.verifier, "version": self.version, "scored": self.scored, "failed": dict(self.failed)}
        mean = {"mean_reward": self.rewards / self.scored} if self.scored else {}
        return {**own, **mean, "same": self.same, "up": self.up, "down": self.down, **means}


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a re-verification. `skipped` had their result before, `copied` were taken over as they are."""

    paths: RunPaths
    scoring: str
    tallies: Mapping[str, Tally]
    copied: int = 0
    skipped: int = 0
    problems: tuple[RowProblem, ...] = ()
    torn: tuple[TornLine, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def scored(self) -> int:
        return sum(t.scored for t in self.tallies.values())

    @property
    def failed(self) -> int:
        return sum(t.failed.total() for t in self.tallies.values())

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "scoring": self.scoring,
            "output": str(self.paths.results),
            "environments": {name: tally.as_json() for name, tally in self.tallies.items()},
            "scored": self.scored,
            "failed": self.failed,
            "copied": self.copied,
            "skipped": self.skipped,
            "problems": [str(p) for p in self.problems],
            "torn": [str(t) for t in self.torn],
            "warnings": list(self.warnings),
        }
