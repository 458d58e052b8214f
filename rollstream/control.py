"""What a program says to all workers: cancel, pause or resume a run, the policy's version.

    await set_control(connection, run="night-7", state="cancelled")

Owns the writing of the compacted `control` topic; `services.runtime.control` reads it. Invariant: what a change does not name
stays as it is. A change is read, merged and written, so of two at the same moment for one run the later one wins whole.
"""

from __future__ import annotations

import asyncio

from aiokafka.errors import KafkaError
from pydantic import ValidationError

from rollstream.ledger.reader import LogReader
from rollstream.producer import started_producer
from schemas.errors import DataError, InfrastructureError
from schemas.identity import is_id
from schemas.topics import CONTROL, Topics
from services.runtime.connection import Connection
from services.runtime.control import ALL_RUNS, ControlEntry, State
from services.runtime.record import ConsumerRecord

MAX_VERSION = 1_000
"""Characters of a policy version: a name or a path, not the policy."""

_TIMEOUT_S = 30.0


async def read_control(connection: Connection, topics: Topics | None = None) -> dict[str, ControlEntry]:
    """What was last said about each run; `*` stands for all runs. Records that cannot be read are left out, as workers do.

    Raises `InfrastructureError` or `AdminError` when the broker does not answer or the topic does not exist.
    """
    name = (topics or Topics()).name(CONTROL)
    found: dict[str, ControlEntry] = {}

    def note(record: ConsumerRecord) -> None:
        run = (record.key or b"").decode("utf-8", "replace")
        try:
            if record.value is None:
                found.pop(run, None)
            else:
                found[run] = ControlEntry.model_validate_json(record.value)
        except ValidationError:
            pass  # the workers log it

    async with LogReader(connection, [name]) as reader:
        await reader.read(await reader.ends([name]), {}, note)
    return found


async def set_control(
    connection: Connection,
    topics: Topics | None = None,
    *,
    run: str,
    state: State | None = None,
    policy_version: str | None = None,
) -> ControlEntry:
    """Say something about a run, or about all of them (`*`); what now stands for it, once all replicas have it.

    Raises `DataError` for a run or version that cannot be one, and what `read_control` raises.
    """
    if run != ALL_RUNS and not is_id(run):
        raise DataError(
            f"run {run[:200]!r}: a letter or digit, then letters, digits, '.', '_' or '-'; or {ALL_RUNS} for all runs"
        )
    if policy_version is not None and not 0 < len(policy_version) <= MAX_VERSION:
        raise DataError(f"a policy version has 1 to {MAX_VERSION:,} characters, found {len(policy_version):,}")
    topics = topics or Topics()
    before = (await read_control(connection, topics)).get(run, ControlEntry())
    said = {name: value for name, value in (("state", state), ("policy_version", policy_version)) if value is not None}
    entry = before.model_copy(update=said)
    await _write(connection, topics.name(CONTROL), run, entry)
    return entry


async def _write(connection: Connection, topic: str, run: str, entry: ControlEntry) -> None:
    producer = await started_producer(connection)
    try:
        value = entry.model_dump_json(exclude_none=True).encode()
        async with asyncio.timeout(_TIMEOUT_S):
            await producer.send_and_wait(topic, value, key=run.encode())
    except (KafkaError, TimeoutError) as e:
        raise InfrastructureError(f"{topic} was not written: {e!r}") from e
    finally:
        await asyncio.wait_for(producer.stop(), _TIMEOUT_S)
