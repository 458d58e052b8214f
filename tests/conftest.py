"""Fixtures for every test: a real broker, topics of one's own, a broker to break, and a seed that is printed.

`kafka` is a `Connection` to one broker per session, `topics` a `Topics` with a prefix of its own whose topics exist,
`own_broker` a started `LocalBroker` that the test may stop, kill and start again, `rng` a seeded `random.Random`.

Several processes may run the tests (`-n auto`, as `./check` does): each has a broker of its own, all have one seed, and a test
marked `alone` runs while no other does.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import sys
import tempfile
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # test directories are no packages; helpers are imported as `support.…`

from support import brokers
from support.loops import LoopThread
from support.turns import Turns

from rollstream.broker import LocalBroker
from schemas.topics import Topics
from services.runtime.admin import ensure_topics
from services.runtime.connection import Connection

SEED_SETTING = "ROLLSTREAM_TEST_SEED"
SEED = int(os.environ.get(SEED_SETTING) or secrets.randbelow(1 << 32))
PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or "usual"
ROOT = Path(__file__).parents[1]
PARTITIONS = 2  # the fewest with which keys can land in different ones

_PROCESS_BYTES = 2 << 30  # a process of ours, its broker, a second one that a test breaks, and a pipeline of processes
_OURS = ("tests", "rollstream", "services", "environments", "schemas", "benchmarks")

_too_slow = [hypothesis.HealthCheck.too_slow]  # shared machines stall; a real slowness shows in the test's own timeout
_common = {"deadline": None, "suppress_health_check": _too_slow, "print_blob": True}
hypothesis.settings.register_profile("usual", max_examples=50, **_common)  # every run has another seed: they add up
hypothesis.settings.register_profile("deep", max_examples=1_000, **_common)  # before a release, or after a change to a parser
hypothesis.settings.load_profile(PROFILE)


COMMON_SEED = pytest.StashKey[int]()
TURNS = pytest.StashKey[Turns]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """One seed for everything random, hypothesis included, unless the command line gives hypothesis another."""
    if config.getoption("--hypothesis-seed", None) is None:
        config.option.hypothesis_seed = str(SEED)
    given = getattr(config, "workerinput", {})  # by the process that starts the others and has their reports
    config.stash[COMMON_SEED] = given.get("seed", SEED)
    if "turns" in given:
        config.stash[TURNS] = Turns(Path(given["turns"]))
    elif config.getoption("numprocesses", None):
        folder = tempfile.TemporaryDirectory(prefix="rollstream-turns-")
        config.add_cleanup(folder.cleanup)
        config.stash[TURNS] = Turns(Path(folder.name))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """A process for each core, and fewer where memory is short. Inside a container the cores that it may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, psutil.virtual_memory().available // _PROCESS_BYTES))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["turns"] = str(node.config.stash[TURNS].folder)
    node.workerinput["seed"] = SEED


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Wait for the test's turn, before its time begins to count."""
    turns = item.config.stash.get(TURNS, None)
    turn = contextlib.nullcontext() if turns is None else turns.alone() if item.get_closest_marker("alone") else turns.beside()
    with turn:
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, object, object]:
    """A traceback begins with the project's own code, not with how pytest came to it."""
    if call.excinfo is not None:
        frames = call.excinfo.traceback
        ours = (n for n, frame in enumerate(frames) if _is_ours(Path(frame.path)))
        call.excinfo.traceback = frames[next(ours, 0) :]
    return (yield)


def _is_ours(file: Path) -> bool:
    return file.is_relative_to(ROOT) and file.relative_to(ROOT).parts[0] in _OURS and file != Path(__file__)


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
    return random.Random(_seed(request))


@pytest.fixture(autouse=True)
def _seeded(request: pytest.FixtureRequest) -> None:
    random.seed(_seed(request))


def _seed(request: pytest.FixtureRequest) -> int:
    return request.config.stash[COMMON_SEED] ^ zlib.crc32(request.node.nodeid.encode())


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
