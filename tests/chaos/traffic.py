"""Prompts for the chaos tests, and an eye on what comes out."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError
from support.pipeline import mcqa

import environments.example_single_tool_call as tool_call
from rollstream.producer import PromptProducer
from schemas.topics import FAILURES, SCORED, Topics
from services.runtime.connection import Connection
from tests.chaos.account import Rollout

_SLICES = 40


def row(number: int) -> dict[str, Any]:
    """Even: one turn of `mcqa`. Odd: a question that takes a tool call."""
    if number % 2 == 0:
        return mcqa(number)
    return {**_TOOL_ROWS[number // 2 % len(_TOOL_ROWS)], "number": number}


async def send(
    kafka: Connection, topics: Topics, run: str, tasks: int, *, repeats: int = 2, over_s: float = 0.0, first: int = 0
) -> set[Rollout]:
    """Dispatch `tasks` x `repeats` rollouts, spread over `over_s` seconds; returns their identities."""
    async with PromptProducer(kafka, topics) as producer:
        for i in range(first, first + tasks):
            await producer.send(row(i), run_id=run, task_id=f"t{i}", task_index=i, repeats=repeats)
            if over_s and (i - first) % max(1, tasks // _SLICES) == 0:
                await asyncio.sleep(over_s / _SLICES)
    return {(i, j) for i in range(first, first + tasks) for j in range(repeats)}


async def flow(kafka: Connection, topics: Topics, run: str, enough: asyncio.Event, *, per_s: int = 20) -> set[Rollout]:
    """Dispatch `per_s` tasks of two rollouts a second until there is enough; returns the rollouts' identities."""
    expected: set[Rollout] = set()
    while not enough.is_set():
        expected |= await send(kafka, topics, run, per_s, over_s=1.0, first=len(expected) // 2)
    return expected


class Tail:
    """Committed records of some topics as they come, with the moment they were made; goes on through broker outages."""

    def __init__(self, kafka: Connection, topics: Topics, specs: tuple[Any, ...] = (SCORED, FAILURES)) -> None:
        self._kafka = kafka
        self._parts = [TopicPartition(topics.name(s), p) for s in specs for p in range(topics.partitions)]
        self.records: list[ConsumerRecord] = []
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._reader = AIOKafkaConsumer(
            **self._kafka.kwargs(), isolation_level="read_committed", fetch_max_wait_ms=50, auto_offset_reset="earliest"
        )
        await self._reader.start()
        self._reader.assign(self._parts)
        await self._reader.seek_to_beginning(*self._parts)
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._reader.stop()

    @property
    def count(self) -> int:
        """Rollouts seen, by key and header (a failure counts as one too)."""
        return len({(r.key, dict(r.headers).get("rs-rollout")) for r in self.records})

    async def _follow(self) -> None:
        while True:
            try:
                for records in (await self._reader.getmany(timeout_ms=100)).values():
                    self.records += records
            except KafkaError:
                await asyncio.sleep(0.1)


_TOOL_ROWS = [
    json.loads(line)
    for line in (Path(next(iter(tool_call.__path__))) / "data" / "example.jsonl").read_text("utf-8").splitlines()
    if line.strip()
]
