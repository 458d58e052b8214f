"""From materialized rows to prompts on the log, each exactly once.

Invariant: a rollout that is dispatched already is not dispatched again: a resume looks into the prompts topic first, and
what slips through is recognised by admission as the same rollout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rollstream.ledger.reader import LogReader
from rollstream.producer import PromptProducer
from rollstream.runfiles.problems import RowProblem
from rollstream.runfiles.readers import JsonLines, key_of
from rollstream.runfiles.tally import agent_of
from schemas import jsontext
from schemas.errors import DataError
from schemas.identity import Place
from schemas.prompts import read_prompt
from schemas.topics import PROMPTS, Topics
from services.runtime.connection import Connection
from services.runtime.record import ConsumerRecord, TopicPartition
from services.sink.step import rollout_key

Attempt = tuple[int, int, int]
"""(task index, rollout index, attempt)."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """What is to be sent: the materialized rows in `path`, less those in `skip`; `attempts` beyond the first by rollout."""

    run_id: str
    path: Path
    group_sizes: Mapping[int, int]
    skip: frozenset[Attempt] = frozenset()
    attempts: Mapping[tuple[int, int], int] | None = None


async def dispatch(producer: PromptProducer, plan: Dispatch, asked: Callable[[bytes, str], None] | None = None) -> int:
    """Send the prompts; the number sent. `asked` is told each rollout's key and agent first. Raises as the producer does."""
    sent = 0
    seen: set[tuple[int, int]] = set()
    for row in JsonLines(plan.path):
        key = key_of(row)
        if key is None or key in seen:  # refused when the rows were read
            continue
        seen.add(key)
        if asked is not None:
            asked(rollout_key(plan.run_id, *key), agent_of(row))
        attempt = (plan.attempts or {}).get(key, 0)
        if (*key, attempt) in plan.skip:
            continue
        await producer.send(
            jsontext.dumps(row),
            run_id=plan.run_id,
            task_id=f"task-{key[0]}",
            task_index=key[0],
            first_rollout=key[1],
            attempt=attempt,
            group_size=plan.group_sizes.get(key[0], 1),
        )
        sent += 1
    return sent


async def refuse(producer: PromptProducer, run_id: str, problems: Iterable[RowProblem]) -> None:
    """Record refused rows in the failures topic."""
    for p in problems:
        await producer.refuse(run_id, p.file, p.line, p.message, p.original)


async def dispatched(
    connection: Connection, topics: Topics, run_id: str, since: Mapping[TopicPartition, int]
) -> frozenset[Attempt]:
    """The attempts of a run whose prompts are on the log."""
    found: set[Attempt] = set()

    def note(record: ConsumerRecord) -> None:
        try:
            task = read_prompt(record.value, Place(record.topic, record.partition, record.offset))
        except DataError:
            return
        if task.prompt.run_id == run_id:
            found.update((r.task_index, r.rollout_index, r.attempt) for r in task.rollouts())

    name = topics.name(PROMPTS)
    async with LogReader(connection, [name]) as reader:
        ends = await reader.ends([name])
        await reader.read(ends, {tp: since.get(tp, 0) for tp in ends}, note)
    return frozenset(found)
