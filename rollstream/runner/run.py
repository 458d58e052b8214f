"""The one-process run: rows in, four files out, and a ledger that balances.

The order of things: rows are checked and materialized while the broker starts; the run's groups are placed at the end of
the log; workers start; prompts are sent; when every rollout has ended (or somebody stops the run) the workers drain, and
the ledger is read from the topics, not from what this process believes.

Invariant: at every moment before the end, the same command with `--resume` continues the run.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from environments.own import declare
from environments.registry import Registry
from rollstream.ledger import Ledger, mark, read_ledger
from rollstream.producer import PromptProducer
from rollstream.runfiles.aggregate import Aggregated, write_aggregate
from rollstream.runfiles.expansion import Plan
from rollstream.runfiles.materialize import Materialized, materialize
from rollstream.runfiles.problems import PlanError, RowProblem
from rollstream.runfiles.readers import JsonLines, done_keys, failed_tries, key_of
from rollstream.runfiles.run_record import RunRecord, code_version, config_hash, read_run_record, utc_now
from rollstream.runner import local
from rollstream.runner.assembly import topics_of, topics_ready
from rollstream.runner.dispatch import Dispatch, dispatch, dispatched, refuse
from rollstream.runner.display import Display
from rollstream.runner.early import STOPPING, EarlySignals
from rollstream.runner.local import LocalPipeline, RunSink, local_pipeline
from rollstream.runner.plan import RunRequest, open_rows
from rollstream.runner.watch import Watch
from rollstream.settings.model import Settings
from schemas.errors import RolloutError
from schemas.identity import SOLO
from services.models.named import Endpoints
from services.runtime import collector
from services.runtime.admin import cluster_id
from services.runtime.connection import Connection
from services.sink.line_files import Mode
from services.sink.paths import RunPaths
from services.sink.step import rollout_key

T = TypeVar("T")

MAX_ATTEMPTS = 3
"""Attempts of a rollout over all resumes (platform.md A9); `NEMO_GYM_MAX_ROLLOUT_ATTEMPTS` overrides it."""

_SETTLED_S = 0.4
"""Nothing worked on for this long after the gates closed: what was in flight has ended or waits in a topic."""

_POLL_S = 0.1


_SHOWN_REASONS = 3


class RunStopped(Exception):
    """Somebody stopped the run before it had begun; nothing was dispatched."""


class RunError(Exception):
    """The run cannot start or go on; the message says what to do."""


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


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A run ready to start: its record, what to dispatch, and the rollouts that ended before (by key: whether scored).

    `draft` are the materialized rows of a new run, which replace those of a former one when the run begins.
    """

    record: RunRecord
    plan: Dispatch
    problems: tuple[RowProblem, ...]
    ended: Mapping[bytes, bool]
    mode: Mode
    draft: Path | None = None


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
    async with AsyncExitStack() as stack:
        connection, endpoints, prepared = await stop.during(_begin(request, settings, registry, paths, display, stack))
        prepared = await stop.during(_placed(prepared, settings, connection, request, display))
        record = replace(prepared.record, warnings=endpoints.warnings)
        sink = RunSink(paths, record.run_id, prepared.mode, record.starting_offsets)
        stack.push_async_callback(sink.close)
        await sink.open()  # from here on the files are this run's, and no former one is touched before
        if prepared.draft is not None:
            prepared.draft.replace(paths.materialized)
        record.write(paths.run)
        watch = _watch(prepared)
        display.say(
            f"run {record.run_id}: {watch.expected or 0:,} rollouts, model {settings.model.name} at {_policy_url(endpoints)}"
        )
        async with local_pipeline(settings, connection, registry, endpoints, sink, watch, stop.during) as pipeline:
            collector.settle()
            stopped = await _drive(pipeline, prepared, connection, settings, watch, stop, display)
        stop.release()
        error = next((w.error for w in pipeline.workers if w.error is not None), None)
        prepared = replace(prepared, record=replace(prepared.record, warnings=endpoints.warnings))
        for warning in endpoints.warnings:
            display.say(f"note: {warning}")
        report = await _finish(prepared, connection, settings, registry, paths, stopped, error)
        return replace(report, reasons=tuple(watch.reasons.most_common(_SHOWN_REASONS)))


async def _begin(
    request: RunRequest, settings: Settings, registry: Registry, paths: RunPaths, display: Display, stack: AsyncExitStack
) -> tuple[Connection, Endpoints, _Prepared]:
    """Broker, model and rows, side by side."""
    preparing = asyncio.create_task(asyncio.to_thread(_prepare, request, settings, registry, paths))
    try:
        connection, endpoints = await asyncio.gather(
            stack.enter_async_context(local.broker(settings, display.say)), stack.enter_async_context(local.models(settings))
        )
        await topics_ready(settings, connection)
    finally:
        prepared = await preparing  # a thread cannot be cut off; reading rows takes a second or two
    return connection, endpoints, prepared


def _watch(prepared: _Prepared) -> Watch:
    watch = Watch(expected=prepared.record.rollouts)
    for key, scored in prepared.ended.items():
        watch.preload(key, scored=scored)
    return watch


async def _drive(
    pipeline: LocalPipeline,
    prepared: _Prepared,
    connection: Connection,
    settings: Settings,
    watch: Watch,
    stop: _Stop,
    display: Display,
) -> bool:
    """Dispatch, and wait for the end; whether the run was stopped before it."""
    sending = asyncio.create_task(_send(prepared, connection, settings))
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


async def _send(prepared: _Prepared, connection: Connection, settings: Settings) -> None:
    async with PromptProducer(connection, topics_of(settings), form="avro") as producer:
        await refuse(producer, prepared.record.run_id, prepared.problems)
        await dispatch(producer, prepared.plan)


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
    prepared: _Prepared,
    connection: Connection,
    settings: Settings,
    registry: Registry,
    paths: RunPaths,
    stopped: bool,
    error: Exception | None,
) -> Report:
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
    aggregated = await asyncio.to_thread(write_aggregate, paths, registry)
    return Report(record.run_id, paths, ledger, aggregated, prepared.problems, stopped, error)


# --- before the start ----------------------------------------------------------------------------------------------


def _prepare(request: RunRequest, settings: Settings, registry: Registry, paths: RunPaths) -> _Prepared:
    """Check and materialize the rows, or read what a former run left. Touches files only."""
    arguments = _arguments(request)
    others = {name: {"url": m.url, "name": m.name} for name, m in settings.models.items()}
    own = {name: variant.model_dump(mode="json") for name, variant in settings.variants.items()}
    more = {name: value for name, value in (("models", others), ("variants", own)) if value}
    identity = config_hash({"arguments": arguments, "model": _model(settings), **more})
    if request.resume:
        return _resumed(paths, identity)
    draft = paths.materialized.with_name(f".{paths.materialized.name}.new")
    found = _materialized(request, registry, draft)
    record = RunRecord(
        run_id=f"{SOLO}{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}",
        config_hash=identity,
        code_version=code_version(),
        started=utc_now(),
        model=_model(settings),
        models=others,
        arguments=arguments,
        rollouts=found.rollouts,
    )
    plan = Dispatch(record.run_id, paths.materialized, found.tasks)
    return _Prepared(record, plan, found.problems, {}, Mode.FRESH, draft)


def _materialized(request: RunRequest, registry: Registry, output: Path) -> Materialized:
    variant = request.environments[0] if len(request.environments) == 1 and request.input else None
    plan = Plan(environment=variant, repeats=request.repeats)
    try:
        with open_rows(request, registry) as (file, name, limit):
            found = materialize(file, name, output, replace(plan, limit=limit), registry, strict=request.strict)
    except (PlanError, RolloutError) as e:
        raise RunError(str(e)) from e
    if found.path is None:
        listed = "\n".join(str(p) for p in found.problems[:20])
        raise RunError(f"no row can be run:\n{listed}" if listed else "there are no rows to run")
    return found


def _resumed(paths: RunPaths, identity: str) -> _Prepared:
    record = read_run_record(paths.run)
    missing = [p for p in (paths.run, paths.materialized) if not p.exists()]
    if record is None or missing:
        raise RunError(f"nothing to resume: {', '.join(map(str, missing))} is missing; run without --resume to start anew")
    if record.config_hash != identity:
        raise RunError(
            f"{paths.run} was made by another command or model (configuration {record.config_hash}, this one {identity}); "
            "repeat the first command with --resume, or choose another --output"
        )
    done = done_keys(paths.results) if paths.results.exists() else set()
    tries = {k: t for k, t in failed_tries(paths.failures).items() if k not in done}
    again = {k: t.count for k, t in tries.items() if not t.terminal and t.count < _max_attempts()}
    ended = {rollout_key(record.run_id, *k): k in done for k in {*done, *tries} - again.keys()}
    sizes: dict[int, int] = {}
    for row in JsonLines(paths.materialized):
        task = (key_of(row) or (0, 0))[0]
        sizes[task] = sizes.get(task, 0) + 1
    skip = frozenset((*k, 0) for k in {*done, *tries} - again.keys())
    plan = Dispatch(record.run_id, paths.materialized, sizes, skip, again)
    return _Prepared(replace(record, ended=None), plan, (), ended, Mode.RESUME)


async def _placed(
    prepared: _Prepared, settings: Settings, connection: Connection, request: RunRequest, display: Display
) -> _Prepared:
    """Give a new run its place at the end of the log; find out what a resumed one has dispatched."""
    topics, record = topics_of(settings), prepared.record
    cluster, now = await asyncio.gather(cluster_id(connection), mark(connection, topics))
    same_log = record.cluster_id == cluster and all(now.get(p, -1) >= o for p, o in record.starting_offsets.items())
    if request.resume and same_log:
        known = await dispatched(connection, topics, record.run_id, record.starting_offsets)
        return replace(prepared, plan=replace(prepared.plan, skip=prepared.plan.skip | known))
    await local.start_of_run(connection, topics, record.run_id)
    if request.resume:
        display.say("the log in which this run began is gone; its rollouts without a result are dispatched anew")
        RunPaths.of(request.output).checkpoint.unlink(missing_ok=True)  # its offsets belong to the other log
    return replace(prepared, record=replace(record, starting_offsets=now, cluster_id=cluster))


def _arguments(request: RunRequest) -> dict[str, Any]:
    return {
        "environments": list(request.environments),
        "input": None if request.input is None else str(request.input),
        "repeats": request.repeats,
        "limit": request.limit,
    }


def _model(settings: Settings) -> Mapping[str, Any]:
    return {"url": settings.model.url, "name": settings.model.name}


def _policy_url(endpoints: Endpoints) -> str:
    return endpoints.policy.base_url if endpoints.policy else "nowhere"


def _max_attempts() -> int:
    text = os.environ.get("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", "")
    return int(text) if text.isdecimal() and int(text) > 0 else MAX_ATTEMPTS


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
