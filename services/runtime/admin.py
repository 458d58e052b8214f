"""Topics and committed offsets, seen from outside a worker: create, check, ask, set.

Invariants: a topic that exists is checked and never changed; what is returned was true of the cluster when it was asked
(an answer that leaves out what was asked for is asked again, never read as "nothing there"); every wait ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import CommitFailedError, KafkaError, TopicAlreadyExistsError, for_code
from aiokafka.structs import OffsetAndMetadata

from schemas.topics import Topics
from services.runtime.connection import Connection

BROKER_DEFAULT = -1
"""Replication factor that leaves the choice to the cluster: 1 on a laptop, usually 3 elsewhere."""

TIMEOUT_S = 30.0
_POLL_S = 0.02  # the local broker elects leaders within 50 ms of creating a topic
_CONNECT_PAUSE_S = 0.1
_CHECKED = ("max.message.bytes", "cleanup.policy")

_log = structlog.get_logger(__name__)

T = TypeVar("T")


class AdminError(Exception):
    """The cluster cannot be reached, refuses, or does not answer in time. The message says which, and what to do."""


class TopicMismatchError(AdminError):
    """Topics exist but cannot carry the pipeline; one complaint names each of them, what was found and what is wanted."""


@dataclass(frozen=True, slots=True)
class TopicsReady:
    """The pipeline's topics as they are: partition count per full name (never fewer than declared), and which are new."""

    partitions: Mapping[str, int]
    created: frozenset[str]

    def of(self, name: str) -> list[TopicPartition]:
        """Every partition of one of the topics."""
        return [TopicPartition(name, number) for number in range(self.partitions[name])]


@dataclass(frozen=True, slots=True)
class Committed:
    """What a consumer group committed for one partition."""

    offset: int
    metadata: str


@dataclass(frozen=True, slots=True)
class _Declared:
    name: str
    partitions: int
    config: Mapping[str, str]


async def ensure_topics(
    connection: Connection,
    topics: Topics,
    *,
    replication: int = BROKER_DEFAULT,
    fewer_ok: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> TopicsReady:
    """Create the topics that are missing, check the others, and wait until every partition has a leader.

    Safe to be called by many processes at once. `fewer_ok` takes existing topics with fewer partitions than declared: for
    when nobody asked for a number. Raises `TopicMismatchError` when an existing topic has too few partitions, takes too
    small records or has the wrong cleanup policy, `AdminError` for anything else.
    """
    declared = [_Declared(*fields) for fields in topics.declare()]

    async def work(admin: AIOKafkaAdminClient) -> TopicsReady:
        existing = await _describe(admin, declared)
        missing = [topic for topic in declared if topic.name not in existing]
        created = await _create(admin, missing, replication, timeout_s)
        ready = TopicsReady(await _led_partitions(admin, declared, created), created)
        kept = [topic for topic in declared if topic.name not in created]
        await _check(admin, [replace(t, partitions=1) for t in kept] if fewer_ok else kept, ready.partitions)
        return ready

    return await _with_admin(connection, work, timeout_s, "creating and checking topics")


async def cluster_id(connection: Connection, *, timeout_s: float = TIMEOUT_S) -> str:
    """The id that the cluster was given when it was formatted; a log that was wiped has another."""

    async def work(admin: AIOKafkaAdminClient) -> str:
        return str((await admin.describe_cluster())["cluster_id"])

    return await _with_admin(connection, work, timeout_s, "asking for the cluster's id")


async def end_offsets(
    connection: Connection, topics: Iterable[str], *, committed_only: bool = True, timeout_s: float = TIMEOUT_S
) -> dict[TopicPartition, int]:
    """The offset after the last record of every partition; topics that do not exist are left out.

    `committed_only`: the offset up to which a read-committed consumer can read now, which stops at an open transaction.
    """
    return await _offsets(connection, topics, "end_offsets", timeout_s, committed_only=committed_only)


async def beginning_offsets(
    connection: Connection, topics: Iterable[str], *, timeout_s: float = TIMEOUT_S
) -> dict[TopicPartition, int]:
    """The offset of the first record still kept of every partition; topics that do not exist are left out."""
    return await _offsets(connection, topics, "beginning_offsets", timeout_s, committed_only=False)


async def partitions_of(connection: Connection, topics: Iterable[str], *, timeout_s: float = TIMEOUT_S) -> list[TopicPartition]:
    """Every partition of those of the topics that exist. Creates none, whatever the broker's settings."""
    wanted = set(topics)

    async def work(admin: AIOKafkaAdminClient) -> list[TopicPartition]:
        found = {name: topic for name, topic in (await _all_topics(admin)).items() if name in wanted}
        return sorted(
            TopicPartition(name, number) for name, topic in found.items() for number in range(len(topic["partitions"]))
        )

    return await _with_admin(connection, work, timeout_s, "asking for partitions")


async def committed(
    connection: Connection, group: str, partitions: Iterable[TopicPartition], *, timeout_s: float = TIMEOUT_S
) -> dict[TopicPartition, Committed]:
    """Committed offset and metadata of a group; a partition for which it never committed is left out."""
    wanted = sorted(partitions)

    async def work(admin: AIOKafkaAdminClient) -> dict[TopicPartition, Committed]:
        while True:
            answer = await _group_offsets(admin, group, wanted)
            if answer is not None and all(partition in answer for partition in wanted):
                return {tp: Committed(found.offset, found.metadata or "") for tp, found in answer.items() if found.offset >= 0}
            await asyncio.sleep(_POLL_S)  # the coordinator is still loading

    return await _with_admin(connection, work, timeout_s, f"asking for the offsets of group {group}") if wanted else {}


async def set_committed(
    connection: Connection, group: str, offsets: Mapping[TopicPartition, int], *, timeout_s: float = TIMEOUT_S
) -> None:
    """Make a group begin at these offsets. The group must have no members: raises `AdminError` when it has some."""
    if not offsets:
        return
    consumer = AIOKafkaConsumer(**connection.kwargs(), group_id=group, enable_auto_commit=False)
    async with _deadline(connection, timeout_s, f"setting the offsets of group {group}"), _started(consumer):
        consumer.assign(list(offsets))
        try:
            await consumer.commit({partition: OffsetAndMetadata(offset, "") for partition, offset in offsets.items()})
        except CommitFailedError as error:
            raise AdminError(
                f"the offsets of group {group} cannot be set while it has members; stop its consumers first"
            ) from error


async def _offsets(
    connection: Connection, topics: Iterable[str], question: str, timeout_s: float, *, committed_only: bool
) -> dict[TopicPartition, int]:
    partitions = await partitions_of(connection, topics, timeout_s=timeout_s)
    if not partitions:
        return {}
    isolation = "read_committed" if committed_only else "read_uncommitted"
    consumer = AIOKafkaConsumer(**connection.kwargs(), isolation_level=isolation, enable_auto_commit=False)
    async with _deadline(connection, timeout_s, "asking for offsets"), _started(consumer):
        consumer.assign(partitions)  # makes it learn all the leaders at once: left to itself it asks topic by topic, 0.1 s each
        answer: dict[TopicPartition, int] = await getattr(consumer, question)(partitions)
        return answer


async def _all_topics(admin: AIOKafkaAdminClient) -> dict[str, dict[str, Any]]:
    # All of them, because asking by name creates the topic on brokers that allow it, with the wrong settings.
    return {topic["topic"]: topic for topic in await admin.describe_topics()}


async def _describe(admin: AIOKafkaAdminClient, declared: list[_Declared]) -> dict[str, dict[str, Any]]:
    names = {topic.name for topic in declared}
    return {name: topic for name, topic in (await _all_topics(admin)).items() if name in names}


async def _create(admin: AIOKafkaAdminClient, missing: list[_Declared], replication: int, timeout_s: float) -> frozenset[str]:
    """Create in one request; a topic that another process created meanwhile counts as existing. Returns ours."""
    if not missing:
        return frozenset()
    answer: Any = await admin.create_topics([_new(topic, replication) for topic in missing], timeout_ms=int(timeout_s * 1000))
    created, refused = set(), []
    for name, code, *text in answer.topic_errors:
        if code == 0:
            created.add(name)
        elif code != TopicAlreadyExistsError.errno:
            refused.append(f"{name}: {(text and text[0]) or for_code(code).description} ({for_code(code).message})")
    if refused:
        raise AdminError("the cluster refuses to create topics: " + "; ".join(refused))
    return frozenset(created)


def _new(topic: _Declared, replication: int) -> NewTopic:
    new = NewTopic(topic.name, topic.partitions, 1, topic_configs=dict(topic.config))
    new.replication_factor = replication  # aiokafka's constructor takes -1 for "not given", the protocol for "your default"
    return new


async def _check(admin: AIOKafkaAdminClient, kept: list[_Declared], partitions: Mapping[str, int]) -> None:
    if not kept:
        return
    found = await _configurations(admin, [topic.name for topic in kept])
    complaints = []
    for topic in kept:
        wrong = _wrong_config(topic, found.get(topic.name, {}))
        if partitions[topic.name] < topic.partitions:
            wrong.append(f"it has {partitions[topic.name]} partitions, wanted at least {topic.partitions}")
        if wrong:
            complaints.append(f"topic {topic.name}: {'; '.join(wrong)}")
    if complaints:
        raise TopicMismatchError(
            "topics exist that cannot carry the pipeline. "
            + ". ".join(complaints)
            + ". Change them, or choose another topic prefix"
        )


def _wrong_config(topic: _Declared, found: Mapping[str, str]) -> list[str]:
    wrong = []
    wanted_size, size = topic.config["max.message.bytes"], found.get("max.message.bytes")
    if size is not None and int(size) < int(wanted_size):
        wrong.append(f"max.message.bytes is {size}, wanted at least {wanted_size}")
    wanted_policy, policy = topic.config.get("cleanup.policy", "delete"), found.get("cleanup.policy")
    # Compaction keeps one record per key, so in a topic of events it loses events; deletion beside it is harmless.
    if policy is not None and ("compact" in policy) != (wanted_policy == "compact"):
        wrong.append(f"cleanup.policy is {policy}, wanted {wanted_policy}")
    return wrong


async def _configurations(admin: AIOKafkaAdminClient, names: list[str]) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(ConfigResourceType.TOPIC, name, dict.fromkeys(_CHECKED)) for name in names]
    found: dict[str, dict[str, str]] = {}
    answers: list[Any] = await admin.describe_configs(resources)
    for answer in answers:
        for code, text, _, name, entries in answer.resources:
            if code:
                # Clusters often let a client write to a topic but not see its settings: that must not stop it.
                _log.warning("the settings of a topic cannot be checked", topic=name, reason=text or for_code(code).message)
            else:
                found[name] = {entry[0]: entry[1] for entry in entries}
    return found


async def _led_partitions(admin: AIOKafkaAdminClient, declared: list[_Declared], created: frozenset[str]) -> dict[str, int]:
    """Wait until each topic is known and its partitions led: all we asked for where we created it. Returns their counts."""
    wanted = {topic.name: topic.partitions if topic.name in created else 1 for topic in declared}
    while True:
        found = await _describe(admin, declared)
        if all(name in found and _led(found[name], count) for name, count in wanted.items()):
            return {name: len(found[name]["partitions"]) for name in wanted}
        await asyncio.sleep(_POLL_S)


def _led(topic: Mapping[str, Any], at_least: int) -> bool:
    partitions = topic["partitions"]
    return len(partitions) >= at_least and all(part["error_code"] == 0 and part["leader"] >= 0 for part in partitions)


async def _group_offsets(
    admin: AIOKafkaAdminClient, group: str, partitions: list[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata] | None:
    """The coordinator's answer; None when there is none yet. aiokafka reports a loading coordinator as an empty answer."""
    try:
        return await admin.list_consumer_group_offsets(group, partitions=partitions)
    except KafkaError as error:
        if not error.retriable:
            raise
        return None


async def _with_admin(
    connection: Connection, work: Callable[[AIOKafkaAdminClient], Awaitable[T]], timeout_s: float, what: str
) -> T:
    async with _deadline(connection, timeout_s, what), _started(AIOKafkaAdminClient(**connection.kwargs())) as admin:
        return await work(admin)


@asynccontextmanager
async def _deadline(connection: Connection, timeout_s: float, what: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError as error:
        raise AdminError(f"{what}: no answer from Kafka at {connection} within {timeout_s:g} s") from error
    except KafkaError as error:
        raise AdminError(f"{what}: Kafka at {connection} answers {error}") from error


@asynccontextmanager
async def _started(client: Any) -> AsyncIterator[Any]:
    """Connect, trying again while nothing listens; the caller's deadline ends it."""
    stop = getattr(client, "close", None) or client.stop
    try:
        while True:
            try:
                await client.start()
                break
            except KafkaError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(_CONNECT_PAUSE_S)
        yield client
    finally:
        await stop()
