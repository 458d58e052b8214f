"""What operators and trainers say to all workers: cancel a run, pause and resume it, the policy's version.

Owns the reading of the compacted `control` topic: JSON values keyed by run id (`*` for all runs). Invariant: every worker
reads all of it from the beginning, so a worker that starts late knows what one that was there knows.
"""

from __future__ import annotations

import asyncio
from typing import Literal

import structlog
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from pydantic import BaseModel, ConfigDict, ValidationError

from services.runtime.connection import Connection
from services.runtime.record import TopicPartition

log = structlog.get_logger()

ALL_RUNS = "*"
_RETRY_S = 2.0
_START_TIMEOUT_S = 10.0


State = Literal["running", "paused", "cancelled"]


class ControlEntry(BaseModel):
    """The value of one record of `control`; the last one for a run counts.

    What an entry leaves out holds as the entry of all runs says it.
    """

    model_config = ConfigDict(extra="forbid")

    state: State | None = None
    policy_version: str | None = None


class Control:
    """The present state of every run, kept up to date in the background."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        self._partition = TopicPartition(topic, 0)
        self._entries: dict[str, ControlEntry] = {}
        self._task: asyncio.Task[None] | None = None
        self._caught_up = asyncio.Event()

    async def start(self) -> None:
        """Read what there is (bounded wait), then go on in the background."""
        self._task = asyncio.get_running_loop().create_task(self._follow())
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                await self._caught_up.wait()
        except TimeoutError:
            log.warning("control topic not read yet", topic=self._partition.topic, waited_s=_START_TIMEOUT_S)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def is_cancelled(self, run: str) -> bool:
        """Whether rollouts of the run are to end as cancelled."""
        return self._state(run) == "cancelled"

    def is_paused(self, scope: str = "") -> bool:
        """Whether admission is paused: for all runs, or in a run's own workers (`scope`) for that run.

        Workers that are shared cannot hold one run back without holding back what lies behind it in the partition.
        """
        return self._state(scope or ALL_RUNS) == "paused"

    def policy_version(self, run: str) -> str | None:
        """The policy's version as the trainer last said it, for the run or for all."""
        own, every = self._entries.get(run), self._entries.get(ALL_RUNS)
        return (own and own.policy_version) or (every.policy_version if every else None)

    def _state(self, run: str) -> State:
        if not self._entries:
            return "running"
        own, every = self._entries.get(run), self._entries.get(ALL_RUNS)
        return (own and own.state) or (every and every.state) or "running"

    async def _follow(self) -> None:
        while True:
            consumer = AIOKafkaConsumer(**self._connection.kwargs(), isolation_level="read_committed")
            try:
                await consumer.start()
                consumer.assign([self._partition])
                await self._read(consumer)
            except (KafkaError, OSError) as e:
                log.warning("control topic cannot be read", topic=self._partition.topic, error=repr(e))
                await asyncio.sleep(_RETRY_S)
            finally:
                await consumer.stop()

    async def _read(self, consumer: AIOKafkaConsumer) -> None:
        await consumer.seek_to_beginning(self._partition)
        end = (await consumer.end_offsets([self._partition]))[self._partition]
        while True:
            if not self._caught_up.is_set() and await consumer.position(self._partition) >= end:
                self._caught_up.set()
            for records in (await consumer.getmany(timeout_ms=200)).values():
                for record in records:
                    self._note(record.key, record.value, record.offset)

    def _note(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        run = (key or b"").decode("utf-8", "replace")
        if value is None:
            self._entries.pop(run, None)
            return
        try:
            self._entries[run] = ControlEntry.model_validate_json(value)
        except ValidationError as e:
            log.warning("control record ignored", topic=self._partition.topic, offset=offset, run=run, error=str(e))
