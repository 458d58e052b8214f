"""Sweeping old claims, and the memory cache in front of the store."""

import asyncio
import os
import time

from hypothesis import given
from hypothesis import strategies as st

from schemas import topics
from schemas.identity import RolloutRef
from services.runtime import claims
from services.runtime.claim_cache import ENTRY_OVERHEAD, ByteCache
from services.runtime.claims import ClaimStore

DAY = 86_400


def age(root, days):
    for path in root.rglob("*"):
        os.utime(path, (time.time() - days * DAY,) * 2)


async def keep(store, count, run):
    for i in range(count):
        await store.keep(RolloutRef(run, "t", i, 0), 0, b"data %d" % i)


async def test_old_claims_and_their_empty_directories_go_young_ones_stay(tmp_path):
    store = ClaimStore(str(tmp_path))
    await keep(store, 5, "old")
    (tmp_path / "old" / "0-0" / ".dead-1.tmp").write_bytes(b"left by a killed worker")
    age(tmp_path, 40)
    await keep(store, 3, "young")
    assert await store.sweep() == 6
    assert len(list((tmp_path / "old").iterdir())) == 5  # directories go once nothing has happened in them for a while
    for _ in ("the rollouts", "the run"):
        age(tmp_path, 1)
        assert await store.sweep() == 0
    assert [p.name for p in tmp_path.iterdir()] == ["young"]
    assert len([p for p in tmp_path.rglob("*") if p.is_file()]) == 3


async def test_a_claim_outlives_every_event_that_may_refer_to_it(tmp_path):
    store = ClaimStore(str(tmp_path))
    await keep(store, 1, "run")
    age(tmp_path, max(spec.retention_ms for spec in topics.ALL) / 86_400_000)
    assert await store.sweep() == 0


async def test_each_call_looks_at_a_bounded_number_and_goes_on_where_the_last_ended(tmp_path):
    store = ClaimStore(str(tmp_path))
    await keep(store, 20, "run")
    age(tmp_path, 40)
    removed = [await store.sweep(limit=7) for _ in range(8)]  # 20 files, 20 directories and their parent
    assert max(removed) <= 7
    assert sum(removed) == 20
    assert await store.sweep() == 0
    await keep(store, 1, "again")  # the next pass begins anew
    age(tmp_path, 40)
    assert sum([await store.sweep(), await store.sweep()]) == 1


async def test_a_store_that_holds_nothing_yet_can_be_swept(tmp_path):
    assert await ClaimStore(str(tmp_path / "none")).sweep() == 0


async def test_object_stores_are_left_to_their_lifecycle_rules():
    store = ClaimStore("memory://swept")
    await keep(store, 1, "run")
    assert await store.sweep(older_than_s=-DAY) == 0


async def test_writers_go_on_while_a_sweep_removes_their_directories(tmp_path):
    store, other = ClaimStore(str(tmp_path), cache_bytes=0), ClaimStore(str(tmp_path))
    ref, data = RolloutRef("run", "t", 0, 0), b"x" * (claims.INLINE_IO + 1)

    async def sweeping():
        while True:
            await other.sweep()

    sweeper = asyncio.create_task(sweeping())
    for i in range(50):
        claim = await store.keep(ref, i, data)
        assert await store.fetch(ref, i, claim) == data
        for file in (tmp_path / "run" / "0-0").iterdir():
            file.unlink()  # so that the sweep finds the directory empty
    sweeper.cancel()


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2000)), max_size=60))
def test_the_cache_is_bounded_and_keeps_what_was_used_last(uses):
    limit = 4 * ENTRY_OVERHEAD + 1000
    cache, used = ByteCache(limit), []
    for key, size in uses:
        cache.put(str(key), bytes(size))
        used = [k for k in used if k != key]
        if size + ENTRY_OVERHEAD <= limit:
            used.append(key)
        assert cache.held <= limit
        assert cache.held == sum(len(d) + ENTRY_OVERHEAD for d in cache._entries.values())
        kept = [int(k) for k in cache._entries]
        assert kept == used[len(used) - len(kept) :]


def test_reading_counts_as_use():
    cache = ByteCache(2 * ENTRY_OVERHEAD + 2)
    cache.put("a", b"a")
    cache.put("b", b"b")
    assert cache.get("a") == b"a"
    cache.put("c", b"c")
    assert [cache.get(n) for n in "abc"] == [b"a", None, b"c"]
