"""The one-process run: rows in, four files out, and a ledger that balances.

The order of things: rows are checked and materialized while the broker starts; the run's groups are placed at the end of
the log; workers start; prompts are sent; when every rollout has ended (or somebody stops the run) the workers drain, and
the ledger is read from the topics, not from what this process believes.

Invariant: at every moment before the end, the same command with `--resume` continues the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from environments.own import declare
from environments.registry import Registry
from rollstream.ledger import Ledger, mark, read_ledger
from rollstream.producer import PromptProducer
from rollstream.runfiles.aggregate import Aggregated, write_aggregate
from rollstream.runfiles.problems import RowProblem
from rollstream.runfiles.run_record import RunRecord
from rollstream.runner import local
from rollstream.runner.assembly import topics_of, topics_ready
from rollstream.runner.dispatch import dispatch, dispatched, refuse
from rollstream.runner.display import Display
from rollstream.runner.early import STOPPING, EarlySignals
from rollstream.runner.local import LocalPipeline, RunSink, local_pipeline
from rollstream.runner.plan import RunRequest
from rollstream.runner.prepare import Prepared, check_usable
from rollstream.runner.resume import prepare
from rollstream.runner.watch import Watch
from rollstream.settings.mask import mask_urls
from rollstream.settings.model import Settings
from rollstream.trackers import export
from services.models.named import Endpoints
from services.runtime import collector
from services.runtime.admin import cluster_id
from services.runtime.connection import Connection
from services.sink.line_files import Mode
from services.sink.paths import RunPaths
from services.sink.stopped import stopped as cannot_write

T = TypeVar("T")

_SETTLED_S = 0.4
"""Nothing worked on for this long after the gates closed: what was in flight has ended or waits in a topic."""

_POLL_S = 0.1


_SHOWN_REASONS = 3


class RunStopped(Exception):
    """Somebody stopped the run before it had begun; nothing was dispatched."""


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a run.

    `stopped` when somebody stopped it before every rollout had ended; `reasons` are the most frequent reasons of failures.
    """

    run_id: str
    paths: RunPaths
    ledger: Ledger
    aggregated: Aggregated
    problems: tuple[RowProblem, ...]
    stopped: bool
    error: Exception | None = None
    reasons: tuple[tuple[str, int], ...] = ()


async def run(request: RunRequest, settings: Settings, display: Display, early: EarlySignals | None = None) -> Report:
    """Run until every rollout has ended or the run is stopped (SIGINT or SIGTERM; twice stops at once).

    `early` knows whether a signal came before this was called, which stops the run as well.

    Raises `RunError` when it cannot start, `RunStopped` when it is stopped before it has started, and what the broker, the
    topics and the files raise.
    """
    stop = _Stop.on_signals()
    if early is not None and early.came:
        stop.asked.set()
    declare(settings.variants)
    registry = Registry.load()
    paths = RunPaths.of(request.output)
    if not request.resume:
        await stop.during(asyncio.to_thread(check_usable, request.environments, registry))
    async with AsyncExitStack() as stack:
        connection, endpoints, prepared = await stop.during(_begin(request, settings, registry, paths, display, stack))
        prepared = await stop.during(_placed(prepared, settings, connection, paths, display))
        for note in prepared.notes:
            display.say(note)
        record = replace(prepared.record, warnings=endpoints.warnings)
        sink = RunSink(paths, record.run_id, prepared.mode, record.starting_offsets)
        stack.push_async_callback(sink.close)
        await sink.open()  # from here on the files are this run's, and no former one is touched before
        if prepared.draft is not None:
            prepared.draft.replace(paths.materialized)
        record.write(paths.run)
        watch = _watch(prepared)
        display.say(
            f"run {record.run_id}: {_counted(watch, prepared)}, model {settings.model.name} at {_policy_url(endpoints)}"
        )
        async with local_pipeline(settings, connection, registry, endpoints, sink, watch, stop.during) as pipeline:
            collector.settle()
            stopped = await _drive(pipeline, prepared, connection, settings, watch, stop, display)
        stop.release()
        error = next((w.error for w in pipeline.workers if w.error is not None), None)
        prepared = replace(prepared, record=replace(prepared.record, warnings=endpoints.warnings))
        for warning in endpoints.warnings:
            display.say(f"note: {warning}")
        report = await _finish(prepared, connection, settings, registry if request.aggregate else None, paths, stopped, error)
        if not stopped:
            for note in await export(settings.trackers, report.aggregated.agents, paths.results, _told(prepared.record)):
                display.say(f"note: {note}")
        return replace(report, reasons=tuple(watch.reasons.most_common(_SHOWN_REASONS)))


async def _begin(
    request: RunRequest, settings: Settings, registry: Registry, paths: RunPaths, display: Display, stack: AsyncExitStack
) -> tuple[Connection, Endpoints, Prepared]:
    """Broker, model and rows, side by side."""
    preparing = asyncio.create_task(asyncio.to_thread(prepare, request, settings, registry, paths))
    try:
        connection, endpoints = await asyncio.gather(
            stack.enter_async_context(local.broker(settings, display.say)), stack.enter_async_context(local.models(settings))
        )
        await topics_ready(settings, connection)
    finally:
        prepared = await preparing  # a thread cannot be cut off; reading rows takes a second or two
    return connection, endpoints, prepared


def _counted(watch: Watch, prepared: Prepared) -> str:
    refused = len(prepared.problems)
    return f"{watch.expected or 0:,} rollouts" + (f" ({refused:,} row{'s' * (refused > 1)} refused)" if refused else "")


def _watch(prepared: Prepared) -> Watch:
    watch = Watch(expected=prepared.record.rollouts)
    for key, scored in prepared.ended.items():
        watch.preload(key, scored=scored)
    return watch


async def _drive(
    pipeline: LocalPipeline,
    prepared: Prepared,
    connection: Connection,
    settings: Settings,
    watch: Watch,
    stop: _Stop,
    display: Display,
) -> bool:
    """Dispatch, and wait for the end; whether the run was stopped before it."""
    sending = asyncio.create_task(_send(prepared, connection, settings, watch))
    with display.progress(watch):
        while not (watch.complete and watch.refused >= len(prepared.problems)) and not stop.asked.is_set():
            if any(w.failed.is_set() for w in pipeline.workers):
                break
            if sending.done():
                sending.result()
            await _changed(watch)
            display.update(watch)
        if stop.asked.is_set():
            display.say("stopping: no further turns; calls under way may finish (Ctrl-C again to stop now)")
            await _settle(pipeline, settings.deadlines.drain_timeout_s, stop)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    await pipeline.stop(0.0 if stop.now.is_set() else settings.deadlines.drain_timeout_s)
    return not watch.complete


async def _send(prepared: Prepared, connection: Connection, settings: Settings, watch: Watch) -> None:
    async with PromptProducer(connection, topics_of(settings), form="avro") as producer:
        await refuse(producer, prepared.record.run_id, prepared.problems)
        await dispatch(producer, prepared.plan, watch.asked)


async def _settle(pipeline: LocalPipeline, timeout_s: float, stop: _Stop) -> None:
    """Let calls under way go on to their end, through all topics, until nothing moves or time is up."""
    pipeline.park()
    loop = asyncio.get_running_loop()
    end, quiet_since = loop.time() + timeout_s, loop.time()
    while loop.time() < end and loop.time() - quiet_since < _SETTLED_S and not stop.now.is_set():
        if pipeline.active:
            quiet_since = loop.time()
        await asyncio.sleep(_POLL_S / 2)


async def _changed(watch: Watch) -> None:
    watch.changed.clear()
    try:
        async with asyncio.timeout(_POLL_S):
            await watch.changed.wait()
    except TimeoutError:
        pass


async def _finish(
    prepared: Prepared,
    connection: Connection,
    settings: Settings,
    registry: Registry | None,
    paths: RunPaths,
    stopped: bool,
    error: Exception | None,
) -> Report:
    """Ledger, record and metrics (without a registry: none)."""
    record = prepared.record
    ledger = await read_ledger(
        connection,
        topics_of(settings),
        run=record.run_id,
        since=record.starting_offsets,
        at_least_once=settings.delivery.value == "at_least_once",
    )
    t = ledger.total
    outcomes = {"scored": t.scored, "failed": t.failed, "cancelled": t.cancelled, "expired": t.expired}
    outcomes["in_flight"] = t.in_flight
    (replace(record, outcomes=outcomes) if stopped else record.finished(outcomes)).write(paths.run)
    aggregated = await asyncio.to_thread(_metrics, paths, registry)
    return Report(record.run_id, paths, ledger, aggregated, prepared.problems, stopped, error)


def _metrics(paths: RunPaths, registry: Registry | None) -> Aggregated:
    if registry is not None:
        return write_aggregate(paths, registry)
    try:
        paths.aggregate.unlink(missing_ok=True)  # of the lines before a resume
    except OSError as e:
        raise cannot_write(paths.aggregate, e) from e
    return Aggregated((), ())


async def _placed(
    prepared: Prepared, settings: Settings, connection: Connection, paths: RunPaths, display: Display
) -> Prepared:
    """Give a new run its place at the end of the log; find out what a resumed one has dispatched."""
    topics, record = topics_of(settings), prepared.record
    cluster, now = await asyncio.gather(cluster_id(connection), mark(connection, topics))
    same_log = record.cluster_id == cluster and all(now.get(p, -1) >= o for p, o in record.starting_offsets.items())
    resumed = prepared.mode is Mode.RESUME
    if resumed and same_log:
        known = await dispatched(connection, topics, record.run_id, record.starting_offsets)
        return replace(prepared, plan=replace(prepared.plan, skip=prepared.plan.skip | known))
    await local.start_of_run(connection, topics, record.run_id)
    if resumed:
        if record.cluster_id:
            display.say("the log in which this run began is gone; its rollouts without a result are dispatched anew")
        paths.checkpoint.unlink(missing_ok=True)  # its offsets belong to the other log
    return replace(prepared, record=replace(record, starting_offsets=now, cluster_id=cluster))


def _told(record: RunRecord) -> dict[str, Any]:
    """What trackers are told of a run beside its metrics."""
    told = {"run_id": record.run_id, "code_version": record.code_version, "config_hash": record.config_hash}
    return {**told, "model": record.model.get("name"), "model_url": mask_urls(str(record.model.get("url")))}


def _policy_url(endpoints: Endpoints) -> str:
    return endpoints.policy.base_url if endpoints.policy else "nowhere"


@dataclass(frozen=True, slots=True)
class _Stop:
    """What signals have asked for: `asked` by the first, `now` by the second."""

    asked: asyncio.Event
    now: asyncio.Event

    @classmethod
    def on_signals(cls) -> _Stop:
        stop = cls(asyncio.Event(), asyncio.Event())

        def notice() -> None:
            (stop.now if stop.asked.is_set() else stop.asked).set()

        for number in STOPPING:
            asyncio.get_running_loop().add_signal_handler(number, notice)
        return stop

    async def during(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work`, unless somebody asks to stop first: then it is cancelled and `RunStopped` raised."""
        task, asked = asyncio.create_task(work), asyncio.create_task(self.asked.wait())
        waiting: set[asyncio.Task[Any]] = {task, asked}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise RunStopped("stopped before the run had begun; nothing was dispatched")

    def release(self) -> None:
        """Let signals do again what they always do."""
        for number in STOPPING:
            asyncio.get_running_loop().remove_signal_handler(number)
