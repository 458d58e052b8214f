"""A broker that the chaos tests of one file share, and a pipeline of processes of one's own on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import brokers
from support.loops import LoopThread
from support.processes import Crew

from schemas.topics import Topics
from services.runtime.admin import ensure_topics
from services.runtime.connection import Connection


@pytest.fixture
def crew(kafka: Connection, topics: Topics, tmp_path: Path) -> Iterator[Crew]:
    """Processes on the session's broker, none of which outlives the test."""
    with Crew(tmp_path, kafka.bootstrap_servers, topics.prefix, {"topics.partitions": str(topics.partitions)}) as mine:
        yield mine


@pytest.fixture
def own_topics(own_broker, broker_loop: LoopThread) -> Topics:
    """Topics on the test's own broker."""
    mine = Topics(prefix=brokers.unique_prefix(), partitions=2)
    broker_loop.run(ensure_topics(own_broker.connection, mine))
    return mine


@pytest.fixture
def own_crew(own_broker, own_topics: Topics, tmp_path: Path) -> Iterator[Crew]:
    """Processes on the test's own broker, none of which outlives the test."""
    settings = {"topics.partitions": str(own_topics.partitions)}
    with Crew(tmp_path, own_broker.connection.bootstrap_servers, own_topics.prefix, settings) as mine:
        yield mine
