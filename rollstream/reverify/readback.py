"""The lines of a scoring, read back from its topics as the sink would write them.

Invariant: only committed records are seen; a line that lies in the claim store is fetched after the log has been read, one at a
time, so memory holds no more than one of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

from rollstream.ledger.reader import LogReader
from schemas.topics import FAILURES, SCORED, Topics
from services.runtime.claims import ClaimStore
from services.runtime.connection import Connection
from services.runtime.record import ConsumerRecord, Outgoing
from services.sink.app import sink_step

Take = Callable[[ConsumerRecord, Sequence[Outgoing]], None]
"""Takes a record and the lines of it (`services.sink.step.SinkStep`)."""


async def read_back(connection: Connection, topics: Topics, claims: ClaimStore, take: Take, run: str = "") -> None:
    """Hand the lines of `topics` to `take`, of one run or (empty) of all.

    Raises `InfrastructureError` when the broker does not answer or there are no such topics.
    """
    names = [topics.name(SCORED), topics.name(FAILURES)]
    step = sink_step(names[0], claims, run or None)
    later: list[ConsumerRecord] = []

    def enter(record: ConsumerRecord) -> None:
        made = step(record)
        if inspect.isawaitable(made):
            made.close()  # type: ignore[attr-defined]  # a coroutine; it is begun anew
            later.append(record)
        else:
            take(record, made)

    async with LogReader(connection, names) as reader:
        await reader.read(await reader.ends(names), {}, enter)
    for record in later:
        made = step(record)
        take(record, await made if inspect.isawaitable(made) else made)
