"""Names of the files of one run (platform.md A6), all made from the path of the results file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_SUFFIX = ".jsonl"


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The files beside `results`, which is `DIR/STEM.jsonl`; a path without that suffix gets it."""

    results: Path

    @classmethod
    def of(cls, output: Path | str) -> RunPaths:
        path = Path(output)
        return cls(path if path.suffix == _SUFFIX else path.with_name(path.name + _SUFFIX))

    @property
    def failures(self) -> Path:
        return self._beside("_failures.jsonl")

    @property
    def materialized(self) -> Path:
        return self._beside("_materialized_inputs.jsonl")

    @property
    def aggregate(self) -> Path:
        return self._beside("_aggregate_metrics.json")

    @property
    def reward_profile(self) -> Path:
        return self._beside("_reward_profiling.jsonl")

    @property
    def agent_metrics(self) -> Path:
        return self._beside("_agent_metrics.json")

    @property
    def run(self) -> Path:
        return self._beside("_run.json")

    @property
    def checkpoint(self) -> Path:
        return self._beside(".checkpoint.json")

    @property
    def derived(self) -> tuple[Path, ...]:
        """What is computed from the results and must not outlive them."""
        return self.aggregate, self.reward_profile, self.agent_metrics

    def _beside(self, suffix: str) -> Path:
        return self.results.with_name(self.results.name.removesuffix(_SUFFIX) + suffix)
