"""Prompts onto the log, from a program.

    async with PromptProducer(connection) as producer:
        await producer.send(row, run_id="night-7", environment="mcqa", repeats=8)

Owns the checked, keyed, idempotent write of one record of `prompts`. Invariant: what is sent was read back by
`schemas.prompts.read_prompt` first, so a row that admission would refuse is refused here, where its author still is.
"""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from schemas import codec, headers, jsontext
from schemas.errors import DataError, FailureClass, InfrastructureError, Outcome
from schemas.events import Failure, Payload, Prompt
from schemas.identity import Place, RolloutRef
from schemas.prompts import Task, read_prompt
from schemas.rows import TASK_INDEX
from schemas.topics import FAILURES, INLINE_LIMIT, MAX_PROMPT_BYTES, PROMPTS, Topics, TopicSpec, partition_of
from services.runtime.admin import ensure_topics, partitions_of
from services.runtime.connection import Connection

Row = bytes | str | Mapping[str, Any]
"""A NeMo Gym row (platform.md A1): its JSON text, or the object."""

MAX_OUTSTANDING_BYTES = 4 * MAX_PROMPT_BYTES
"""Sent and not yet acknowledged: four of the largest rows, or some ten thousand ordinary ones."""

LINGER_MS = 5
"""Records of one partition wait this long for company; a loop over a file then fills whole batches."""

START_TIMEOUT_S = 10.0
"""A broker that is there answers within one second; one that is starting, within a few."""

_DEFAULTS = {f.name: f.default for f in dataclasses.fields(Prompt) if f.name != "row"}


@dataclass(frozen=True, slots=True)
class Receipt:
    """One prompt on its way: the rollouts it asks for, and the acknowledgement to come.

    `task` has its final identity unless the prompt was sent without a `task_id`; then the identity follows from the
    place, which `await receipt.place()` tells.
    """

    task: Task
    _acknowledged: asyncio.Future[Any]

    async def place(self) -> Place:
        """Where the record lies, once all replicas have it; raises `InfrastructureError` when it was not written."""
        try:
            found = await asyncio.shield(self._acknowledged)
        except KafkaError as e:
            raise InfrastructureError(f"the prompt was not written: {e}") from e
        return Place(found.topic, found.partition, found.offset)

    async def rollouts(self) -> list[RolloutRef]:
        """The rollouts with their final identity."""
        return dataclasses.replace(self.task, place=await self.place()).rollouts()


class PromptProducer:
    """Sends prompts; an async context manager.

    Idempotent and acknowledged by all replicas: a retried write appears once. At most `MAX_OUTSTANDING_BYTES` are
    unacknowledged; `send` waits, at most `timeout_s` seconds, for room. Leaving the context waits for all of it. `form`
    says how the event is written: `json` (readable with any tool) or `avro` (keeps the row's text byte for byte).
    Topics that do not exist are created as `topics` declares them.
    Entering raises `AdminError` or `InfrastructureError` when no broker answers.
    """

    def __init__(
        self,
        connection: Connection,
        topics: Topics | None = None,
        *,
        form: Literal["json", "avro"] = "json",
        timeout_s: float = 120.0,
        new_trace: Callable[[], bytes] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._connection = connection
        self._topics = topics or Topics()
        self._topic = self._topics.name(PROMPTS)
        self._form = form
        self._timeout_s = timeout_s
        self._now = now
        self._new_trace = new_trace or new_traceparent
        self._producer: AIOKafkaProducer | None = None
        self._partitions: Mapping[str, int] = {}
        self._outstanding = 0
        self._room = asyncio.Event()
        self._failed: BaseException | None = None

    async def __aenter__(self) -> Self:
        self._partitions = await self._count_partitions()
        self._producer = await started_producer(self._connection)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        producer, self._producer = self._started(), None
        try:
            if kind is None:
                await self._flush(producer)
        finally:
            await asyncio.wait_for(producer.stop(), self._timeout_s)

    async def send(
        self,
        row: Row,
        *,
        run_id: str,
        task_id: str | None = None,
        task_index: int | None = None,
        repeats: int = 1,
        first_rollout: int = 0,
        attempt: int = 0,
        group_size: int | None = None,
        environment: str | None = None,
        agent: str | None = None,
        timeout_s: float | None = None,
    ) -> Receipt:
        """Check and send one prompt; returns when it is on its way (see `Receipt` for when it has arrived).

        `environment` or `agent` win over the row's `agent_ref`; `timeout_s` bounds each rollout from its admission. Without
        `task_id` every call is a new task; with one, sending the same (run, task, rollout, attempt) again is a duplicate,
        which the pipeline counts once. Raises `DataError` for a row or argument that admission would refuse,
        `InfrastructureError` when the broker takes nothing within the deadline or an earlier record was lost.
        """
        prompt = Prompt(
            row=_text(row),
            run_id=run_id,
            task_id=task_id,
            task_index=task_index,
            repeats=repeats,
            first_rollout=first_rollout,
            attempt=attempt,
            group_size=group_size,
            environment=environment,
            agent=agent,
            timeout_s=timeout_s,
        )
        return await self.send_prompt(prompt)

    async def send_prompt(self, prompt: Prompt) -> Receipt:
        """`send` for a prompt that is already an event."""
        value = encode_prompt(prompt, self._form)
        task = read_prompt(value, Place(self._topic, 0, 0))
        # Without an id of its own the task's identity is its place, so nothing has to meet: a random key spreads evenly.
        key = task.rollouts()[0].task_key if prompt.task_id else f"{prompt.run_id}/{secrets.token_hex(8)}".encode()
        found = [(headers.RUN, prompt.run_id.encode()), (headers.TRACE, self._new_trace())]
        return Receipt(task, await self._put(PROMPTS, value, key, found))

    async def send_rows(
        self,
        rows: Iterable[Row] | AsyncIterable[Row],
        *,
        run_id: str,
        repeats: int = 1,
        environment: str | None = None,
        agent: str | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Send a dataset, its tasks numbered as in a file (`TaskNumbers`); returns how many rows were sent.

        Rows sent again under the same run are the same rollouts: duplicates while their partition still knows them (its last
        50,000 rollouts, or 5,000 records after a restart or rebalance), else played again; see docs/guarantees.md, Duplicates.
        Raises `DataError` at the first bad row, naming its number; the rows before it have been sent.
        """
        numbers = TaskNumbers(repeats)
        count = 0
        async for row in _each(rows):
            count += 1
            try:
                prompt = Prompt(_text(row), run_id, environment=environment, agent=agent, timeout_s=timeout_s)
                await self.send_prompt(numbers.number(prompt))
            except DataError as e:
                raise DataError(f"row {count}: {e}") from e
        return count

    async def refuse(self, run_id: str, file: str, line: int, message: str, original: bytes) -> None:
        """Record in `failures` that a row was refused before it was sent, so that the run's ledger knows of it.

        `original` is kept up to `INLINE_LIMIT` bytes. Raises like `send`.
        """
        value = codec.encode(_refusal(run_id, file, line, message, original, int(self._now() * 1000)))
        key = f"{run_id}/{file}:{line}".encode("utf-8", "surrogateescape")
        await self._put(FAILURES, value, key, [(headers.RUN, run_id.encode()), (headers.OUTCOME, str(Outcome.FAILED).encode())])

    async def flush(self) -> None:
        """Wait until all that was sent is acknowledged; raises `InfrastructureError` when something was not."""
        await self._flush(self._started())

    async def _count_partitions(self) -> Mapping[str, int]:
        """Of the topics as they are; as they are declared, when they have to be created."""
        names = [self._topic, self._topics.name(FAILURES)]
        found = Counter(tp.topic for tp in await partitions_of(self._connection, names, timeout_s=START_TIMEOUT_S))
        if len(found) == len(names):
            return found
        return (await ensure_topics(self._connection, self._topics, timeout_s=START_TIMEOUT_S)).partitions

    async def _flush(self, producer: AIOKafkaProducer) -> None:
        try:
            await asyncio.wait_for(producer.flush(), self._timeout_s)
        except TimeoutError as e:
            raise self._no_answer() from e
        self._raise_failed()

    async def _put(self, spec: TopicSpec, value: bytes, key: bytes, found: list[tuple[str, bytes]]) -> asyncio.Future[Any]:
        await self._wait_for_room(len(value))
        topic = self._topics.name(spec)
        partition = partition_of(key, self._partitions[topic])
        acknowledged: asyncio.Future[Any] = await self._started().send(topic, value, key, partition=partition, headers=found)
        self._outstanding += len(value)
        acknowledged.add_done_callback(lambda f: self._settle(f, len(value)))
        return acknowledged

    async def _wait_for_room(self, size: int) -> None:
        self._raise_failed()
        while self._outstanding and self._outstanding + size > MAX_OUTSTANDING_BYTES:
            self._room.clear()
            try:
                await asyncio.wait_for(self._room.wait(), self._timeout_s)
            except TimeoutError as e:
                raise self._no_answer() from e
            self._raise_failed()

    def _settle(self, acknowledged: asyncio.Future[Any], size: int) -> None:
        self._outstanding -= size
        self._room.set()
        if not acknowledged.cancelled() and acknowledged.exception() is not None:
            self._failed = acknowledged.exception()

    def _raise_failed(self) -> None:
        if self._failed is not None:
            raise InfrastructureError(f"a prompt was not written to {self._topic}: {self._failed}") from self._failed

    def _no_answer(self) -> InfrastructureError:
        where, waited = self._connection.bootstrap_servers, f"{self._timeout_s:g} s"
        return InfrastructureError(
            f"the broker at {where} acknowledged too little for {waited}; {self._outstanding:,} bytes are still to be written"
        )

    def _started(self) -> AIOKafkaProducer:
        if self._producer is None:
            raise RuntimeError("use PromptProducer as a context manager: async with PromptProducer(...) as producer")
        return self._producer


@dataclass(slots=True)
class TaskNumbers:
    """Identities of a dataset's rows (platform.md B5): the same dataset always gets the same ones.

    A row's own `_ng_task_index` is kept; rows of one text share a task, and a new text gets the number of texts before it.
    Rollouts count on from line to line of one task. Texts are compared without their line ends.
    """

    repeats: int = 1
    _tasks: dict[bytes, int] = field(default_factory=dict)
    _rollouts: dict[int, int] = field(default_factory=dict)
    _explicit: dict[int, bool] = field(default_factory=dict)

    def number(self, prompt: Prompt) -> Prompt:
        """`prompt` with task id, task index and first rollout.

        Raises `DataError` when an index that one row brings is the one another row was given. A text that is refused later
        keeps its number, so mending one line of a file renumbers no other.
        """
        own = _own_index(prompt.row)
        index = self._tasks.setdefault(prompt.row, len(self._tasks)) if own is None else own
        if self._explicit.setdefault(index, own is not None) != (own is not None):
            raise DataError(f"task index {index} would stand for two tasks: some rows have {TASK_INDEX}, others are numbered")
        first = self._rollouts.get(index, 0)
        self._rollouts[index] = first + self.repeats
        return dataclasses.replace(prompt, task_id=f"task-{index}", task_index=index, first_rollout=first, repeats=self.repeats)


async def started_producer(connection: Connection) -> AIOKafkaProducer:
    """An idempotent producer for records as large as a prompt; raises `InfrastructureError` when no broker answers."""
    producer = AIOKafkaProducer(
        **connection.kwargs(),
        enable_idempotence=True,
        acks="all",
        linger_ms=LINGER_MS,
        max_request_size=2 * MAX_PROMPT_BYTES,
    )
    try:
        await asyncio.wait_for(producer.start(), START_TIMEOUT_S)
    except (KafkaError, TimeoutError) as e:
        await producer.stop()
        raise InfrastructureError(f"no Kafka broker answers at {connection.bootstrap_servers}: {e!r}") from e
    return producer


def encode_prompt(prompt: Prompt, form: Literal["json", "avro"] = "json") -> bytes:
    """The bytes of a prompt event. Raises `DataError` when its row is not JSON."""
    if form == "avro":
        return codec.encode(prompt)
    try:
        jsontext.loads(prompt.row)
    except ValueError as e:
        raise DataError(f"not JSON: {e}") from e
    fields = {name: value for name, default in _DEFAULTS.items() if (value := getattr(prompt, name)) != default}
    return jsontext.dumps({**fields, "run_id": prompt.run_id, "row": jsontext.Fragment(prompt.row)})


def new_traceparent() -> bytes:
    """A fresh W3C trace context, sampled: the one trace id from prompt to scored record."""
    return f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01".encode()


def _refusal(run_id: str, file: str, line: int, message: str, original: bytes, now_ms: int) -> Failure:
    kept = original[:INLINE_LIMIT]
    return Failure(
        run_id=run_id,
        failure_class=str(FailureClass.DATA),
        outcome=str(Outcome.FAILED),
        stage="produce",
        error_type=DataError.__name__,
        message=message,
        retryable=False,
        failed_ms=now_ms,
        file=file,
        line=line,
        detail="" if kept == original else f"the original is cut to {len(kept):,} of {len(original):,} bytes",
        original=Payload(kept),
    )


def _text(row: Row) -> bytes:
    if isinstance(row, bytes):
        return row.rstrip(b"\r\n")
    if isinstance(row, str):
        try:
            return row.rstrip("\r\n").encode()
        except UnicodeEncodeError as e:
            raise DataError(f"not JSON: {e}") from e
    odd = jsontext.non_finite_paths(row)
    if odd:
        raise DataError(f"{odd[0]} is not a finite number, which JSON cannot say")
    return jsontext.dumps(row)


def _own_index(row: bytes) -> int | None:
    if TASK_INDEX.encode() not in row:
        return None
    try:
        value = jsontext.loads(row)
    except ValueError:
        return None  # refused by the check that follows, which says why
    own = value.get(TASK_INDEX) if isinstance(value, dict) else None
    return own if isinstance(own, int) and not isinstance(own, bool) else None


async def _each(rows: Iterable[Row] | AsyncIterable[Row]) -> AsyncIterable[Row]:
    if isinstance(rows, AsyncIterable):
        async for row in rows:
            yield row
    else:
        for row in rows:
            yield row
