"""From files to what is to be verified by whom.

Owns everything that is decided before the first verification. Invariant: whatever is wrong with the request, the files or
their environments is said here, while nothing has been written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from environments.registry import Registry
from rollstream.reverify.batch import Source
from rollstream.reverify.group import Siblings
from rollstream.reverify.guard import ReverifyError, Verifier, check
from rollstream.reverify.lines import StoredLines
from rollstream.reverify.pairing import Inputs, Pair, Pairs
from rollstream.reverify.request import FilesRequest
from rollstream.runfiles.problems import RowProblem
from rollstream.runfiles.readers import Key, TornLine, key_of
from rollstream.runfiles.run_record import read_run_record
from schemas.errors import DataError
from schemas.identity import DEFAULT_RUN

_LISTED = 10


class Copy(NamedTuple):
    """A line to take over as it is."""

    key: Key
    start: int
    size: int


class _Found(NamedTuple):
    """What the files hold: pairs of lines of `stored`, lines to take over, lines that cannot be used."""

    stored: Path
    pairs: Sequence[Pair]
    copies: Sequence[Copy]
    problems: Sequence[RowProblem]
    torn: Sequence[TornLine | None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to verify: `pairs` by variant, in the order of the file. `copies` are lines of the rollouts to take over."""

    source: Source
    pairs: Mapping[str, Sequence[Pair]]
    verifiers: Mapping[str, Verifier]
    siblings: Siblings
    safe: bool
    copies: Sequence[Copy] = ()
    problems: tuple[RowProblem, ...] = ()
    torn: tuple[TornLine, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class Planner:
    """Makes the plan of a request."""

    request: FilesRequest
    registry: Registry
    data_dir: Path | None = None
    _variants: dict[str, str] = field(default_factory=dict)

    def plan(self, scoring: str) -> Plan:
        """Read the files and decide; raises `ReverifyError`, `DataError` for environments that are not there, `OSError`."""
        self.request.check()
        inputs = Inputs.read(self.request.inputs_path())
        found = self._recovery(inputs) if self.request.judge_failed_only else self._everything(inputs)
        problems = [*inputs.lines.problems, *found.problems]
        if problems and (self.request.strict or not (found.pairs or found.copies)):
            self._refuse(problems)
        pairs = self._by_variant(found.pairs)
        verifiers = {variant: Verifier.of(self.registry, variant) for variant in pairs}
        source = Source(inputs.lines.path, found.stored, self._run_id(), scoring, self.data_dir)
        return Plan(
            source,
            pairs,
            verifiers,
            self._siblings(inputs, source, pairs, verifiers),
            self._safe(verifiers),
            found.copies,
            tuple(problems),
            tuple(t for t in (inputs.lines.torn, *found.torn) if t is not None),
            (_TWO_CONFIGURATIONS,) if self.request.judge_failed_only and found.pairs else (),
        )

    def _everything(self, inputs: Inputs) -> _Found:
        results = Pairs(inputs, self.request.stored.results)
        pairs = results.read()
        return _Found(self.request.stored.results, pairs, (), results.lines.problems, (results.torn,))

    def _recovery(self, inputs: Inputs) -> _Found:
        """C4: what failed for its judge alone; what has a result is taken over, whether it has an input row or not."""
        results, failures = StoredLines(self.request.stored.results), self.request.stored.failures
        copies: dict[Key, Copy] = {}
        for _, start, size, line in results:
            key = key_of(line)
            if key is not None:
                copies.setdefault(key, Copy(key, start, size))
        failed = Pairs(inputs, failures, judge_failed=True, skip=frozenset(copies))
        pairs = failed.read() if failures.exists() else []
        problems = [*results.problems, *failed.lines.problems]
        return _Found(failures, pairs, list(copies.values()), problems, (results.torn, failed.torn))

    def _refuse(self, problems: Sequence[RowProblem]) -> None:
        listed = "\n".join(str(p) for p in problems[:_LISTED])
        more = f"\nand {len(problems) - _LISTED:,} more" if len(problems) > _LISTED else ""
        raise ReverifyError(f"nothing was verified: {len(problems):,} lines cannot be used\n{listed}{more}")

    def _safe(self, verifiers: Mapping[str, Verifier]) -> bool:
        """C3; C4 leaves the guard out where rollouts are recovered."""
        request = self.request
        return request.judge_failed_only or check(verifiers.values(), with_state=False, force=request.force)

    def _by_variant(self, pairs: Iterable[Pair]) -> dict[str, list[Pair]]:
        """Pairs by variant, cut to the limit: a group that begins within it is taken whole."""
        found: dict[str, list[Pair]] = {}
        limit, count, open_tasks = self.request.limit, 0, set[int]()
        for pair in pairs:
            variant = self._variants.get(pair.agent) or self._variant(pair)
            if limit:
                if count >= limit and not (pair.task in open_tasks and self._is_grouped(variant)):
                    continue
                count += 1
                open_tasks.add(pair.task)
            found.setdefault(variant, []).append(pair)
        return found

    def _is_grouped(self, variant: str) -> bool:
        return self.registry.binding(variant, None).environment.scoring == "group"

    def _variant(self, pair: Pair) -> str:
        """Who verifies a pair (C1): whoever the command or the run names for all, else its agent's environment."""
        if pair.agent not in self._variants:
            self._variants[pair.agent] = self._routed(pair)
        return self._variants[pair.agent]

    def _routed(self, pair: Pair) -> str:
        if self.request.environment:
            return self.registry.variant_of(self.request.environment)
        if not pair.agent:
            return self._only(pair)
        try:
            return self.registry.binding(None, pair.agent).name
        except DataError as e:
            raise ReverifyError(f"{self.request.rollouts}:{pair.number}: {e}; name what verifies it with --environment") from e

    def _only(self, pair: Pair) -> str:
        """The one environment of the stored run, for rows that name no agent."""
        record = read_run_record(self.request.stored.run)
        named = record.arguments.get("environments") if record is not None else None
        if isinstance(named, list) and len(named) == 1:
            return self.registry.variant_of(str(named[0]))
        raise ReverifyError(f"{self.request.rollouts}:{pair.number}: its row names no agent (agent_ref); name --environment")

    def _run_id(self) -> str:
        """The stored run's id: a verifier that draws random numbers draws the same."""
        record = read_run_record(self.request.stored.run)
        return record.run_id if record is not None else DEFAULT_RUN

    def _siblings(
        self, inputs: Inputs, source: Source, pairs: Mapping[str, Sequence[Pair]], verifiers: Mapping[str, Verifier]
    ) -> Siblings:
        """Who completes the groups: when rollouts are recovered, those of their task that have their score."""
        tasks = {p.task for v, some in pairs.items() if verifiers[v].environment.scoring == "group" for p in some}
        beside: dict[int, list[tuple[Source, Pair]]] = {}
        if self.request.judge_failed_only and tasks:
            results = replace(source, stored=self.request.stored.results)
            for pair in Pairs(inputs, results.stored).read():
                if pair.task in tasks:
                    beside.setdefault(pair.task, []).append((results, pair))
        return Siblings({task: rollouts for task, rollouts in inputs.tasks().items() if task in tasks}, beside)


_TWO_CONFIGURATIONS = (
    "rewards now come from two configurations: the recovered rollouts were verified by what is installed and configured now, "
    "the others when they were made"
)
