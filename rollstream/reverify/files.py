"""`rollstream reverify` from files, from start to end (platform.md C1-C4).

Invariant: at every moment after its begin, the same command with `--resume` goes on; what was verified is not verified again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from environments.registry import Registry
from rollstream.reverify.batch import Result, forget_files, read_text
from rollstream.reverify.engine import Engine, waits
from rollstream.reverify.group import Siblings
from rollstream.reverify.guard import ReverifyError, Verifier
from rollstream.reverify.lines import StoredLines
from rollstream.reverify.output import Existing, Output
from rollstream.reverify.pairing import Pair
from rollstream.reverify.plan import Plan, Planner
from rollstream.reverify.request import FilesRequest, Report, Tally
from rollstream.runfiles.aggregate import write_aggregate
from rollstream.runfiles.readers import MalformedLineError
from rollstream.runfiles.run_record import RunRecord, code_version, config_hash, read_run_record, utc_now
from rollstream.runner.assembly import MODEL_SHARE, clients_of
from rollstream.runner.local import models
from rollstream.settings.model import Settings
from schemas.errors import FailureClass
from services.models.named import NamedModels
from services.runtime.clients import Clients
from services.runtime.offload import Offload
from services.runtime.pool import usable_processors
from services.sink.lines import CLASS
from services.sink.paths import RunPaths
from services.verifier_worker.verifying import Verifying

_COPIED_AT_ONCE = 256
"""Lines taken over by one write."""


def new_scoring() -> str:
    """An id for a scoring that was given none."""
    return f"scoring-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


async def reverify_files(
    request: FilesRequest,
    settings: Settings,
    registry: Registry,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Report:
    """Verify stored rollouts again and write a new set of files; `progress` is told how many of how many are done.

    Raises `ReverifyError` for a request that cannot be met (nothing is written then), `DataError` for an environment that
    cannot be used, `SinkStoppedError` when the output cannot be written, `OSError` when a file cannot be read.
    """
    scoring = request.scoring or new_scoring()
    plan = await asyncio.to_thread(Planner(request, registry, settings.environments.folder).plan, scoring)
    identity = _identity(request, plan)
    paths = request.paths(safe=plan.safe)
    _check_record(paths, request, identity)
    output = Output(paths, request.existing)
    output.open()
    try:
        return await _Run(request, settings, registry, plan, output, identity, progress).run()
    finally:
        output.close()
        forget_files()


@dataclass(slots=True)
class _Run:
    request: FilesRequest
    settings: Settings
    registry: Registry
    plan: Plan
    output: Output
    identity: str
    progress: Callable[[int, int], None]

    async def run(self) -> Report:
        plan, tallies = self.plan, {v: Tally(x.name, x.version) for v, x in self.plan.verifiers.items()}
        if self.request.existing is not Existing.APPEND:
            self._record().write(self.output.paths.run)
        copied = self._copy()
        pairs, siblings = self._left()
        total = sum(map(len, plan.pairs.values()))
        left = sum(map(len, pairs.values()))
        book = _Book(tallies, self.output, self._known(), total - left)
        self.progress(total - left, total)
        warnings = await self._verify(pairs, siblings, lambda v, results: self.progress(book.add(v, results), total))
        return await self._finish(Report(
            self.output.paths, plan.source.scoring, tallies, copied, total - left, plan.problems,
            (*plan.torn, *self.output.torn), (*plan.warnings, *warnings),
        ))  # fmt: skip

    async def _verify(
        self, pairs: Mapping[str, Sequence[Pair]], siblings: Siblings, emit: Callable[[Verifier, Sequence[Result]], None]
    ) -> Sequence[str]:
        s, plan = self.settings, self.plan
        asks = any(waits(plan.verifiers[v].environment) for v, some in pairs.items() if some)
        limit = self.request.concurrency
        async with _services(s, asks=asks) as (clients, offload, warnings):
            verifying = Verifying(offload, clients, s.deadlines.verify_timeout_s, s.verifier.record_judge_calls)
            processes = s.verifier.processes or usable_processors()
            engine = Engine(
                plan.source, verifying, clients, limit or s.verifier.in_flight, min(processes, limit or processes), emit,
                self.request.reuse_judge_calls,
            )  # fmt: skip
            await engine.run(pairs, plan.verifiers, siblings)
            return warnings()

    def _left(self) -> tuple[dict[str, list[Pair]], Siblings]:
        """What has no result yet; those of a group that have one are its members still."""
        done, plan = self.output.done, self.plan
        left = {v: [p for p in some if p.key not in done] for v, some in plan.pairs.items()}
        open_tasks = {p.task for some in left.values() for p in some}
        beside = {task: list(some) for task, some in plan.siblings.beside.items()}
        for pair in (p for some in plan.pairs.values() for p in some):
            if pair.key in done and pair.task in open_tasks and pair.task in plan.siblings.tasks:
                beside.setdefault(pair.task, []).append((plan.source, pair))
        return left, replace(plan.siblings, beside=beside)

    def _copy(self) -> int:
        """C4: take over what has a result, and the failures that are not to be tried again."""
        if not self.request.judge_failed_only or self.request.existing is Existing.APPEND:
            return 0
        path = self.request.stored.results
        wanted = [c for c in self.plan.copies if c.key not in self.output.done]
        for i in range(0, len(wanted), _COPIED_AT_ONCE):
            self.output.write([read_text(path, c.start, c.size) for c in wanted[i : i + _COPIED_AT_ONCE]])
        if self.request.existing is not Existing.RESUME:
            self._copy_failures()
        self.output.done |= {c.key for c in wanted}
        return len(wanted)

    def _copy_failures(self) -> None:
        path = self.request.stored.failures
        for _, start, size, line in StoredLines(path) if path.exists() else ():
            if line.get(CLASS) != FailureClass.JUDGE:
                self.output.write((), [read_text(path, start, size)])

    def _known(self) -> bool:
        """Whether the rollouts that fail again have their failure line already: it is the file they were read from."""
        return self.output.paths.failures.resolve() == self.plan.source.stored.resolve()

    def _record(self) -> RunRecord:
        source, request = self.plan.source, self.request
        verifiers = {v: {"verifier": x.name, "version": x.version} for v, x in self.plan.verifiers.items()}
        arguments: dict[str, Any] = {"reverify": True, "inputs": str(source.inputs), "rollouts": str(request.stored.results)}
        arguments |= {"verifiers": verifiers, "judge_failed_only": request.judge_failed_only}
        others = {name: {"url": m.url, "name": m.name} for name, m in self.settings.models.items()}
        count = sum(map(len, self.plan.pairs.values()))
        return RunRecord(
            source.scoring, self.identity, code_version(), utc_now(), models=others, arguments=arguments,
            warnings=self.plan.warnings, rollouts=count,
        )  # fmt: skip

    async def _finish(self, report: Report) -> Report:
        if self.request.existing is not Existing.APPEND:
            outcomes = {"scored": report.scored + report.skipped, "failed": report.failed, "copied": report.copied}
            replace(self._record(), warnings=report.warnings).finished(outcomes).write(report.paths.run)
        return report if self.request.disable_aggregation else await self._aggregated(report)

    async def _aggregated(self, report: Report) -> Report:
        """Compute the metrics; what keeps them from being computed is said, and costs nothing else."""
        inputs = self.plan.source.inputs
        broken = any(problem.file == str(inputs) for problem in report.problems)  # then it is no denominator
        own = report.paths.materialized.exists() or broken
        paths = report.paths if own else _BesideInputs(report.paths.results, inputs)
        try:
            await asyncio.to_thread(write_aggregate, paths, self.registry)
        except MalformedLineError as e:
            return replace(report, warnings=(*report.warnings, f"no metrics were computed: {e}"))
        return report


@dataclass(slots=True)
class _Book:
    """Writes results and counts them. `known`: failure lines are in the file already."""

    tallies: Mapping[str, Tally]
    output: Output
    known: bool
    done: int

    def add(self, verifier: Verifier, results: Sequence[Result]) -> int:
        """Take results; how many there are by now."""
        failed = [r.line for r in results if r.reward is None]
        self.output.write([r.line for r in results if r.reward is not None], [] if self.known else failed)
        for result in results:
            self.tallies[verifier.variant].add(result.reward, result.failure, result.before)
        self.done += len(results)
        return self.done


@dataclass(frozen=True, slots=True)
class _BesideInputs(RunPaths):
    """The files of a scoring, whose input rows are those of the stored run."""

    inputs: Path = Path()

    @property
    def materialized(self) -> Path:
        return self.inputs


@asynccontextmanager
async def _services(settings: Settings, *, asks: bool) -> AsyncIterator[tuple[Clients, Offload, Callable[[], Sequence[str]]]]:
    """Clients and side threads as a verifier worker has them, models if a verifier `asks`, and what is to be said of those."""
    async with AsyncExitStack() as stack:
        named = None
        endpoints = await stack.enter_async_context(models(settings)) if asks else None
        if endpoints is not None:
            named = NamedModels(endpoints, budget_s=MODEL_SHARE * settings.deadlines.verify_timeout_s, judges=True)
        clients, offload = clients_of(settings, named), Offload("reverify")
        for service in (clients, offload):
            await service.start()
            stack.push_async_callback(service.close)
        yield clients, offload, lambda: endpoints.warnings if endpoints is not None else ()


def _identity(request: FilesRequest, plan: Plan) -> str:
    """What a resumed command has in common with the first."""
    verifiers = {v: [x.name, x.version] for v, x in plan.verifiers.items()}
    files = [str(plan.source.inputs.resolve()), str(request.stored.results.resolve())]
    return config_hash({"files": files, "verifiers": verifiers, "judge_failed_only": request.judge_failed_only})


def _check_record(paths: RunPaths, request: FilesRequest, identity: str) -> None:
    """Refuse to go on with files that another command has made: their rewards would come from two configurations."""
    if request.existing is not Existing.RESUME or not paths.results.exists():
        return
    record = read_run_record(paths.run)
    if record is None or record.config_hash != identity:
        made = "has no record of what made it" if record is None else "was made from other files or by other verifiers"
        raise ReverifyError(f"{paths.results} {made}; choose another --output, or --overwrite it")
