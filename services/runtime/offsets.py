"""Committed positions of a consumer group, read with their metadata.

Consumers cannot read their own commit metadata for a partition they are about to take over without racing the group, so
this asks the coordinator directly (design §2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata

from schemas.errors import InfrastructureError
from services.runtime import position_codec
from services.runtime.connection import Connection
from services.runtime.delivery import Position, UnreadablePositionError
from services.runtime.record import TopicPartition

_NEVER = -1


class Offsets:
    """Reads the positions of one group. `strict`: metadata that is not ours stops us, else it means "do it again"."""

    def __init__(self, connection: Connection, group: str, *, strict: bool) -> None:
        self._connection = connection
        self._group = group
        self._strict = strict
        self._admin: AIOKafkaAdminClient | None = None
        self._starting = asyncio.Lock()

    async def committed(self, partition: TopicPartition) -> Position:
        """The committed position of a partition.

        Raises `UnreadablePositionError` in strict mode when its metadata was not written by rollstream, and
        `InfrastructureError` while the group's coordinator is not there to say.
        """
        return (await self.committed_many([partition]))[partition]

    async def committed_many(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Position]:
        """The committed positions of several partitions, in one request to the coordinator. Raises what `committed` does."""
        if not partitions:
            return {}  # to the coordinator, none would mean all
        admin = await self._started()
        found = await admin.list_consumer_group_offsets(self._group, partitions=list(partitions))
        return {p: self._position(p, found.get(p)) for p in partitions}

    def _position(self, partition: TopicPartition, found: OffsetAndMetadata | None) -> Position:
        if found is None:
            # What aiokafka makes of a coordinator that is still loading: no answer, which is not "nothing committed".
            raise InfrastructureError(f"the coordinator of group {self._group} does not answer for {partition} yet")
        if found.offset == _NEVER:
            return Position()
        try:
            return position_codec.decode(found.offset, found.metadata or "")
        except UnreadablePositionError as e:
            if self._strict:
                raise UnreadablePositionError(
                    f"group {self._group}, {partition.topic}/{partition.partition}: {e}. Exactly-once will not guess which "
                    "records are finished; reset the group's offsets (which clears the metadata) or use another group"
                ) from e
            return Position(found.offset)

    async def close(self) -> None:
        """Close the connection."""
        admin, self._admin = self._admin, None
        if admin is not None:
            await admin.close()

    async def _started(self) -> AIOKafkaAdminClient:
        async with self._starting:
            if self._admin is None:
                admin = AIOKafkaAdminClient(**self._connection.kwargs())
                await admin.start()
                self._admin = admin
            return self._admin
