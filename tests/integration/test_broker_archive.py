"""The archive of classes: made in the background, once, whole or not at all, and used by the next start."""

import asyncio
import shutil

import psutil
import pytest

from rollstream.broker import LocalBroker, archive, jars
from rollstream.broker.java import find_java
from rollstream.broker.local import _HEAP

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


@pytest.fixture
def fresh_cache(tmp_path, monkeypatch):
    """A cache with jars and no archive. Returns where the archive will be."""
    jars.kafka_jars()
    home = jars._home()
    monkeypatch.setenv("ROLLSTREAM_CACHE_DIR", str(tmp_path / "cache"))
    shutil.copytree(home, jars._home())
    return archive.archive_path(find_java(), jars.kafka_jars(pytest.fail), _HEAP)


def makers(cache) -> list[psutil.Process]:
    """Living processes that work in this cache on an archive."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or ())
        if (
            process.info["status"] != psutil.STATUS_ZOMBIE
            and str(cache) in line
            and ("rollstream.broker.train" in line or "AOTCacheOutput" in line)
        ):
            found.append(process)
    return found


async def until(condition, timeout_s):
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110  another process makes it true
            await asyncio.sleep(0.02)


async def test_a_first_start_makes_the_archive_and_the_next_one_uses_it(fresh_cache, tmp_path):
    broker = LocalBroker(tmp_path / "data")
    await broker.start()
    try:
        assert not fresh_cache.exists()
        await until(fresh_cache.exists, 200)
        assert fresh_cache.stat().st_size > 10 << 20
    finally:
        await broker.stop()
    async with broker:
        assert f"-XX:AOTCache={fresh_cache}" in psutil.Process(broker.info.pid).cmdline()
        assert makers(fresh_cache.parent) == []
    assert sorted(path.name for path in fresh_cache.parent.iterdir()) == sorted(
        [fresh_cache.name, "train.lock", jars._home().name]
    )


async def test_making_it_ends_with_the_broker_and_leaves_nothing(fresh_cache, tmp_path):
    async with LocalBroker(tmp_path / "data"):
        await until(lambda: any("AOTCacheOutput" in " ".join(maker.cmdline()) for maker in makers(fresh_cache.parent)), 60)
    await until(lambda: not makers(fresh_cache.parent), 10)
    assert sorted(path.name for path in fresh_cache.parent.iterdir()) == ["kafka-4.2.0", "train.lock"]
