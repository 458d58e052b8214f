"""Fixtures for every test: a real broker, topics of one's own, a broker to break, and a seed that is printed.

`kafka` is a `Connection` to one broker per session, `topics` a `Topics` with a prefix of its own whose topics exist,
`own_broker` a started `LocalBroker` that the test may stop, kill and start again, `rng` a seeded `random.Random`.
"""

from __future__ import annotations

import os
import random
import secrets
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # test directories are no packages; helpers are imported as `support.…`

from support import brokers
from support.loops import LoopThread

from rollstream.broker import LocalBroker
from schemas.topics import Topics
from services.runtime.admin import ensure_topics
from services.runtime.connection import Connection

SEED_SETTING = "ROLLSTREAM_TEST_SEED"
SEED = int(os.environ.get(SEED_SETTING) or secrets.randbelow(1 << 32))
PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
PARTITIONS = 2  # the fewest with which keys can land in different ones

_too_slow = [hypothesis.HealthCheck.too_slow]  # shared machines stall; a real slowness shows in the test's own timeout
hypothesis.settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=_too_slow)
hypothesis.settings.register_profile("ci", max_examples=200, deadline=None, suppress_health_check=_too_slow, print_blob=True)
hypothesis.settings.load_profile(PROFILE)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """One seed for everything random, hypothesis included, unless the command line gives hypothesis another."""
    if config.getoption("--hypothesis-seed", None) is None:
        config.option.hypothesis_seed = str(SEED)


def pytest_report_header(config: pytest.Config) -> list[str]:
    given = config.getoption("--hypothesis-seed", None)
    settings = hypothesis.settings.default
    return [
        f"seed: {SEED_SETTING}={SEED}" + ("" if given == str(SEED) else f" (hypothesis: {given})"),
        f"hypothesis: HYPOTHESIS_PROFILE={PROFILE}, {settings.max_examples} examples",
        f"kafka: {brokers.preferred()}",
    ]


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Random numbers that depend on the session's seed and the test's name only."""
    return random.Random(SEED ^ zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture(autouse=True)
def _seeded(request: pytest.FixtureRequest) -> None:
    random.seed(SEED ^ zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture(scope="session")
def broker_loop() -> Iterator[LoopThread]:
    loop = LoopThread()
    yield loop
    loop.close()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory, broker_loop: LoopThread) -> Iterator[Connection]:
    """A real Kafka: the one that KAFKA_BOOTSTRAP_SERVERS names, else one in Docker, else the local one. Once per session."""
    with brokers.broker(brokers.preferred(), tmp_path_factory.mktemp("kafka"), broker_loop) as connection:
        yield connection


@pytest.fixture
def topics(kafka: Connection, broker_loop: LoopThread) -> Topics:
    """The seven topics under a prefix of this test's own, two partitions each, created."""
    mine = Topics(prefix=brokers.unique_prefix(), partitions=PARTITIONS)
    broker_loop.run(ensure_topics(kafka, mine))
    return mine


@pytest.fixture
def own_broker(tmp_path: Path, broker_loop: LoopThread) -> Iterator[LocalBroker]:
    """A local broker for this test alone, started: `await own_broker.kill()`, `.stop()`, `.start()`, `.info.pid`."""
    mine = LocalBroker(tmp_path / "own-broker")
    broker_loop.run(mine.start())
    yield mine
    broker_loop.run(mine.stop())
