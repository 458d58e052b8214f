"""What came of a storm: the topics and the files, read when all is over, and everything that must be true of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from support.brokers import eventually

from rollstream.ledger import Ledger, read_ledger
from schemas import codec, jsontext
from schemas.events import Failure
from schemas.topics import FAILURES, SCORED, Topics
from services.runtime.connection import Connection

Rollout = tuple[int, int]
"""(task index, rollout index)."""

_ABORTED_S = 45.0
"""A transaction that a killed worker left open hides what follows; the broker aborts it after 30 s."""


@dataclass(frozen=True)
class Account:
    """The committed outputs: how often each rollout was scored, the failures, and the ledger."""

    scored: Counter[Rollout]
    failures: list[Failure]
    ledger: Ledger

    def describe(self) -> str:
        kinds = Counter((f.outcome, f.failure_class, f.stage, f.message) for f in self.failures)
        twice = [r for r, n in self.scored.items() if n > 1]
        return f"{self.ledger.equation()}; {self.ledger.complaints()}; twice: {twice[:5]}; failures: {kinds.most_common(5)}"


async def account_of(kafka: Connection, topics: Topics, run: str, *, at_least_once: bool = False) -> Account:
    """Read the outputs to their ends, which must be the ends also of what is not committed."""
    scored, failed = topics.name(SCORED), topics.name(FAILURES)
    parts = [TopicPartition(t, p) for t in (scored, failed) for p in range(topics.partitions)]
    records = await everything(kafka, parts)
    lines = [jsontext.loads_lenient(r.value) for r in records if r.topic == scored]
    failures = [codec.decode(r.value, Failure) for r in records if r.topic == failed]
    ledger = await read_ledger(kafka, topics, run=run, at_least_once=at_least_once)
    return Account(Counter(rollout_of(line) for line in lines), failures, ledger)


async def everything(kafka: Connection, parts: list[TopicPartition]) -> list[ConsumerRecord]:
    """Every committed record, once nothing undecided is left."""
    async with AIOKafkaConsumer(**kafka.kwargs(), isolation_level="read_uncommitted") as all_of_it:
        high = await all_of_it.end_offsets(parts)
    async with AIOKafkaConsumer(**kafka.kwargs(), isolation_level="read_committed", fetch_max_wait_ms=50) as reader:
        stable = await eventually(lambda: reader.end_offsets(parts), high, _ABORTED_S)
        assert stable == high, "a transaction is still open"
        reader.assign(parts)
        await reader.seek_to_beginning(*parts)
        found: list[ConsumerRecord] = []
        while [p for p in parts if await reader.position(p) < high[p]]:
            found += [r for records in (await reader.getmany(timeout_ms=200)).values() for r in records]
        return found


def rollout_of(line: dict[str, Any]) -> Rollout:
    return line["_ng_task_index"], line["_ng_rollout_index"]


def lines_of(*files: Path) -> list[dict[str, Any]]:
    """The lines of JSONL files; every one must be whole."""
    found = []
    for path in files:
        data = path.read_bytes()
        assert data[-1:] in {b"", b"\n"}, f"{path} ends in the middle of a line"
        found += [json.loads(line) for line in data.splitlines()]
    return found


def directory_lines(root: Path, run: str) -> list[dict[str, Any]]:
    """The results lines of a run in the sink's directory."""
    return lines_of(*sorted((root / run).glob("scored-rollouts-*.jsonl")))


def rollouts(lines: Iterable[dict[str, Any]]) -> Counter[Rollout]:
    return Counter(rollout_of(line) for line in lines)


def all_once(expected: set[Rollout], found: Counter[Rollout], where: str) -> None:
    """Each expected rollout exactly once, and no other."""
    missing, twice = expected - found.keys(), [r for r, n in found.items() if n > 1]
    assert not missing, f"{where}: {len(missing)} missing, such as {sorted(missing)[:5]}"
    assert not twice, f"{where}: {len(twice)} more than once, such as {twice[:5]}"
    assert found.keys() == expected, f"{where}: not dispatched: {sorted(found.keys() - expected)[:5]}"
