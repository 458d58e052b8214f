"""The samples of a process: what its workers, their stages and their clients have counted.

Invariant: it reads and changes nothing, and whoever has no counts is passed over. A scrape takes a millisecond or two.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version

import psutil

from services.metrics import catalogue as m
from services.metrics.exposition import Sample, histogram, text
from services.models.breaker import BreakerState
from services.models.client import PolicyClient
from services.models.named import NamedModels
from services.runtime.clients import Clients
from services.runtime.failures import Failures
from services.runtime.histogram import BOUNDS_S
from services.runtime.offload import Offload
from services.runtime.pool import ProcessPool
from services.runtime.pressure import Pressure
from services.runtime.stage import Stage
from services.runtime.worker import Worker
from services.sandbox.sandbox import SandboxService
from services.sandbox.sessions import LiveSessions
from services.sink.counting import Lines

Labels = Mapping[str, str]


def page(workers: Iterable[Worker]) -> str:
    """All metrics of the process that has these workers, for Prometheus."""
    return text([*_process(), *(s for w in workers for s in of_worker(w))])


def of_worker(worker: Worker) -> Iterator[Sample]:
    """The samples of one worker."""
    labels = {"worker": worker.name}
    yield Sample(m.READY, worker.ready, labels)
    for stage in worker.stages:
        yield from of_stage(stage)
    for thing in (*(worker.clients if worker.started else ()), *worker.measured):
        yield from _of(thing, labels)


def of_stage(stage: Stage) -> Iterator[Sample]:
    """The samples of one stage."""
    labels, c = {"stage": stage.settings.name}, stage.counters
    counted = {m.DELIVERED: c.delivered, m.FINISHED: c.finished, m.COMMITS: c.commits}
    counted |= {m.RECOVERED: c.recovered, m.REOPENED: c.reopened, m.EXPIRED: c.expired}
    counted |= {m.ACTIVE: stage.active, m.IN_FLIGHT: stage.in_flight, m.HELD: stage.held, m.PARTITIONS: len(stage.lanes)}
    for metric, value in counted.items():
        yield Sample(metric, value, labels)
    yield Sample(m.OLDEST, _age(stage.oldest_start), labels)
    for topic, lag in _lag(stage).items():
        yield Sample(m.LAG, lag, {**labels, "topic": topic})
    yield from histogram(m.SECONDS, BOUNDS_S, stage.seconds.counts, stage.seconds.total_s, labels)


def _age(since: float | None) -> float:
    return 0.0 if since is None else asyncio.get_running_loop().time() - since


def _lag(stage: Stage) -> Counter[str]:
    """By topic; of partitions whose end is known."""
    found: Counter[str] = Counter()
    for partition in stage.lanes:
        lag = stage.lag(partition)
        if lag is not None:
            found[partition.topic] += lag
    return found


def _of(thing: object, labels: Labels) -> Iterator[Sample]:
    if isinstance(thing, Clients):
        for owned in (*thing.owned, thing.sessions):
            yield from _of(owned, labels)
    elif isinstance(thing, NamedModels):
        for client in {id(c): c for c in thing.clients.values()}.values():
            yield from of_model(client, labels)
    elif isinstance(thing, PolicyClient):
        yield from of_model(thing, labels)
    elif isinstance(thing, Failures):
        yield from (Sample(m.FAILURES, n, {**labels, "class": c}) for c, n in thing.made.items())
    elif isinstance(thing, Pressure):
        yield Sample(m.ADMITTING, thing.may_admit())
        yield from (Sample(m.OPEN, n, {"topic": topic}) for topic, n in thing.open.items())
    elif isinstance(thing, Lines):
        yield from (Sample(m.SINK_LINES, n, {"kind": kind}) for kind, n in thing.counts.items())
    else:
        yield from _of_compute(thing, labels)


def _of_compute(thing: object, labels: Labels) -> Iterator[Sample]:
    if isinstance(thing, ProcessPool):
        yield Sample(m.POOL_PROCESSES, len(thing.pids), labels)
        yield Sample(m.POOL_QUEUED, thing.queued, labels)
    elif isinstance(thing, SandboxService):
        yield Sample(m.SANDBOX_PROGRAMS, thing.programs, labels)
    elif isinstance(thing, LiveSessions):
        yield Sample(m.SESSIONS, thing.count, labels)
    elif isinstance(thing, Offload):
        yield Sample(m.THREADS_HELD_UP, thing.held_up, labels)


def of_model(client: PolicyClient, labels: Labels) -> Iterator[Sample]:
    """The samples of one model client; its URL without secrets."""
    s = client.snapshot()
    labels = {**labels, "model": client.endpoint.name, "url": client.mask(client.endpoint.base_url)}
    counted = {m.MODEL_CALLS: s.calls, m.MODEL_ANSWERED: s.answered, m.MODEL_RETRIED: s.retried_calls}
    counted |= {m.MODEL_OVERFLOWS: s.overflows, m.MODEL_IN_FLIGHT: s.in_flight, m.MODEL_WAITING: s.waiting}
    counted |= {m.MODEL_ALLOWANCE: s.allowance}
    for metric, value in counted.items():
        yield Sample(metric, value, labels)
    for metric, reasons in ((m.MODEL_RETRIES, s.retries), (m.MODEL_FAILURES, s.failures)):
        yield from (Sample(metric, n, {**labels, "reason": reason}) for reason, n in reasons.items())
    for state in BreakerState:
        yield Sample(m.MODEL_BREAKER, state == s.breaker, {**labels, "state": state})


def _process() -> Iterator[Sample]:
    own = psutil.Process()
    with own.oneshot():
        times, memory, began = own.cpu_times(), own.memory_info(), own.create_time()
    yield Sample(m.BUILD, 1, {"version": version("rollstream")})
    yield Sample(m.CPU, times.user + times.system)
    yield Sample(m.MEMORY, memory.rss)
    yield Sample(m.STARTED, began)
