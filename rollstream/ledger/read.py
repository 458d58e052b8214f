"""The ledger, computed from the topics.

Invariant: it is a function of committed records alone, so it holds for prompts that came by `kcat`, while workers run, and
after all of them are gone. The ends of `scored-rollouts` and `failures` are noted before that of `prompts`: what had ended
by the first moment had been dispatched by the second, whatever happens in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from aiokafka import TopicPartition

from rollstream.ledger.book import Book, Naming
from rollstream.ledger.ledger import Ledger
from rollstream.ledger.naming import Names
from rollstream.ledger.reader import LogReader, Marks
from schemas.topics import FAILURES, PROMPTS, SCORED, Topics
from services.runtime.connection import Connection


async def read_ledger(
    connection: Connection,
    topics: Topics | None = None,
    *,
    run: str | None = None,
    since: Marks | None = None,
    at_least_once: bool = False,
    name: Naming | None = None,
    now: Callable[[], float] = time.time,
) -> Ledger:
    """The account of `run` (None: of all runs) from `since` (see `mark`; None: the oldest record) to this moment.

    `name` says what a rollout in flight is counted under; by default the installed environments do. Raises
    `InfrastructureError` when the broker does not answer or a topic does not exist.
    """
    topics = topics or Topics()
    book = Book(run, topics.name(PROMPTS), at_least_once=at_least_once)
    async with LogReader(connection, _names(topics)) as reader:
        taken_ms = int(now() * 1000)
        ends = await reader.ends([topics.name(SCORED), topics.name(FAILURES)])
        prompts = await reader.ends([topics.name(PROMPTS)])
        enter = {topics.name(SCORED): book.scored, topics.name(FAILURES): book.failure, topics.name(PROMPTS): book.prompt}
        for upto in (prompts, ends):
            await reader.read(upto, since or {}, lambda r: enter[r.topic](r))
    return book.close(taken_ms, name or Names().name)


async def mark(connection: Connection, topics: Topics | None = None) -> dict[TopicPartition, int]:
    """This moment in the log, for a later `read_ledger(since=...)`. Prompts written after it are in that ledger."""
    topics = topics or Topics()
    async with LogReader(connection, _names(topics)) as reader:
        prompts = await reader.ends([topics.name(PROMPTS)])
        return {**prompts, **await reader.ends([topics.name(SCORED), topics.name(FAILURES)])}


def _names(topics: Topics) -> list[str]:
    return [topics.name(spec) for spec in (PROMPTS, SCORED, FAILURES)]
