"""A scoring in the log: the live one, or one that a re-verification made.

Invariant: only committed records count, and nothing is moved: no group, no offset.
"""

from __future__ import annotations

from collections.abc import Sequence

from rollstream.diffing.scoring import Scoring
from rollstream.reverify.readback import read_back
from schemas import headers, jsontext
from schemas.topics import Topics
from services.runtime.claims import ClaimStore
from services.runtime.connection import Connection
from services.runtime.record import ConsumerRecord, Outgoing


async def read_log(found: Scoring, connection: Connection, topics: Topics, claims: ClaimStore, run: str = "") -> Scoring:
    """`found`, with what `topics` hold of one run or (empty) of all; raises as `read_back` does."""

    def take(record: ConsumerRecord, outputs: Sequence[Outgoing]) -> None:
        environment = (headers.value(record.headers, headers.ENVIRONMENT) or b"").decode("utf-8", "replace")
        for out in outputs:
            named = (headers.value(out.headers, headers.RUN) or b"").decode("utf-8", "replace")
            found.add(jsontext.loads_lenient(out.value), named, environment)

    await read_back(connection, topics, claims, take, run)
    return found
