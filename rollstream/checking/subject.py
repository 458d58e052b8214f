"""The environment under check, as its examples use it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from environments.agents.playing import Play
from environments.discovery import Entry
from environments.hostile import SHAPES
from environments.registry import Binding, Registry
from environments.testing import EnvironmentHarness, ScriptedModel
from environments.verdict import Verdict
from rollstream.checking.bench import AnyName, Bench
from rollstream.checking.findings import Problem
from schemas.errors import InfrastructureError, RolloutError
from schemas.rows import agent_name, parse_row

PAIR = 2
"""Members of the groups that a check scores: the fewest that can be compared."""


@dataclass(frozen=True)
class Subject:
    """An environment and what is needed to run it. `shapes`: the megabytes that are timed (`environments.hostile`)."""

    entry: Entry
    registry: Registry
    bench: Bench
    shapes: Collection[str] = tuple(SHAPES)

    @cached_property
    def bindings(self) -> list[Binding]:
        """A binding of each variant; raises `DataError` for one that cannot be used."""
        return [self.registry.binding(variant, None) for variant in self.entry.manifest.variants]

    @property
    def main(self) -> Binding:
        """The first variant."""
        return self.bindings[0]

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The example tasks; raises `Problem` that names the line of one that is not accepted."""
        path = self.entry.folder / "data" / "example.jsonl"
        if not path.is_file():
            raise Problem("there is no data/example.jsonl")
        found = []
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            try:
                found.append(parse_row(line))
            except RolloutError as e:
                raise Problem(f"data/example.jsonl:{number}: {e}") from e
        return found

    def binding_of(self, row: Mapping[str, Any]) -> Binding:
        """The binding that a row's agent leads to; the first variant's for a row that names none."""
        agent = agent_name(dict(row))
        return self.main if agent is None else self.registry.binding(None, agent)

    def seeded(
        self, row: Mapping[str, Any], binding: Binding | None = None, judge: ScriptedModel | None = None
    ) -> EnvironmentHarness:
        """A rollout of `row` that has begun; everything about it is new."""
        harness = EnvironmentHarness(binding or self.binding_of(row), context=self.bench.context(judge))
        harness.seed(row)
        return harness

    def played(self, row: Mapping[str, Any]) -> tuple[EnvironmentHarness, dict[str, Any]]:
        """A rollout of `row` against the scripted policy, to its end: the final Responses object."""
        binding = self.binding_of(row)
        harness = self.seeded(row, binding)
        return harness, Play(binding.agent, harness, AnyName()).run()


def scored(harness: EnvironmentHarness, *responses: Mapping[str, Any]) -> list[Verdict]:
    """The verdicts on `responses`, scored alone, or as one group where the environment scores groups."""
    if harness.environment.scoring == "group":
        return harness.verify_group(responses if len(responses) > 1 else [*responses] * PAIR)
    return [harness.verify(r) for r in responses]


def outcome(harness: EnvironmentHarness, *responses: Mapping[str, Any]) -> str:
    """Everything that scoring `responses` led to, as text to compare: verdicts, or the error.

    Raises `InfrastructureError`: what is not there has not been compared.
    """
    try:
        return described(scored(harness, *responses))
    except InfrastructureError:
        raise
    except RolloutError as e:
        return f"{type(e).__name__}: {e}"


def described(verdicts: Sequence[Verdict]) -> str:
    """Verdicts as JSON text."""
    return json.dumps(
        [{"reward": v.reward, "components": v.components, "mask_sample": v.mask_sample, **v.fields} for v in verdicts],
        default=repr,
    )
