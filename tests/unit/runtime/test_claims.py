"""The claim store: names, round trips, what a reader sees of damage, and what leaves the event loop."""

import asyncio
import errno
import os
import shutil
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import DataError, InfrastructureError
from schemas.events import Claim, Payload
from schemas.identity import RolloutRef
from services.runtime import claims
from services.runtime.claim_files import Directory, open_blobs
from services.runtime.claims import ClaimStore, Limits, claim_in_name, claim_name, claim_of, inline

REF = RolloutRef("run-1", "task-7", 7, 2)
FAST = Limits(backoff_s=0.0)


@pytest.fixture
def store(tmp_path):
    store = ClaimStore(str(tmp_path / "claims"))
    yield store
    store.close()


def fresh(store: ClaimStore) -> ClaimStore:
    """Another worker on the same place: nothing in memory."""
    return ClaimStore(store.where)


def test_a_name_says_run_rollout_position_size_and_crc():
    # CRC-32 of "123456789" is the check value of the CRC catalogue.
    assert claim_name(REF, 3, claim_of(b"123456789")) == "run-1/7-2/3-9-cbf43926"
    assert claim_name(REF, "row", Claim(1, 1)) == "run-1/7-2/row-1-00000001"


@pytest.mark.parametrize(
    ("run", "index"),
    [
        ("..", 0),
        ("a/b", 0),
        ("", 0),
        ("a\n", 0),
        (".a", 0),
        ("a", ".."),
        ("a", "../x"),
        ("a", "x/y"),
        ("a", -1),
        ("a", ""),
        ("a\0", 0),
    ],
)
def test_a_name_that_could_leave_the_store_is_refused(run, index):
    with pytest.raises(DataError, match="cannot name a claim"):
        claim_name(RolloutRef(run, "t", 0, 0), index, Claim(1, 1))


def test_a_name_holds_its_claim():
    for index in (3, "row", "a-b"):
        assert claim_in_name(claim_name(REF, index, Claim(9, 0x0BF43926))) == Claim(9, 0x0BF43926)
    for name in ("", "run/1-1/row-9", "../1-1/row-9-00000000", "run/1-1/row-٣-00000000"):
        with pytest.raises(DataError):
            claim_in_name(name)


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "run/1-1/../../x-1-00000000", "run/1-1/row-1-00000000\n", ""])
async def test_put_and_get_refuse_names_of_another_form(store, name):
    with pytest.raises(DataError):
        await store.put(name, b"x")
    with pytest.raises(DataError):
        await store.get(name, claim_of(b"x"))


@pytest.mark.parametrize("size", [1, claims.INLINE_IO, claims.INLINE_IO + 1, 3_000_000])
async def test_what_one_worker_keeps_another_fetches(store, size):
    data = os.urandom(size)
    claim = await store.keep(REF, 0, data)
    assert await fresh(store).fetch(REF, 0, claim) == data


@given(parts=st.lists(st.binary(max_size=200), min_size=1, max_size=8), limit=st.integers(0, 100))
def test_pack_then_unpack_gives_the_bytes_back(tmp_path_factory, parts, limit):
    async def go():
        store = ClaimStore(str(tmp_path_factory.mktemp("claims")), cache_bytes=0)
        packed = [await store.pack(REF, i, part, limit) for i, part in enumerate(parts)]
        assert [p.size > 0 for p in packed] == [len(part) > limit for part in parts]
        assert [inline(p) for p in packed] == [part if len(part) <= limit else None for part in parts]
        assert [await store.unpack(REF, i, p) for i, p in enumerate(packed)] == parts
        store.close()

    asyncio.run(go())


async def test_the_worker_that_stored_a_claim_reads_it_from_memory(store):
    claim = await store.keep(REF, 0, b"settled")
    shutil.rmtree(store.where)
    assert await store.fetch(REF, 0, claim) == b"settled"
    with pytest.raises(InfrastructureError):
        await fresh(store).fetch(REF, 0, claim)


async def test_a_directory_that_was_swept_away_is_made_again(store):
    await store.keep(REF, 0, b"settled")
    shutil.rmtree(store.where)
    claim = await store.keep(REF, 1, b"more")
    assert await fresh(store).fetch(REF, 1, claim) == b"more"


async def test_a_missing_claim_says_what_and_where(store):
    with pytest.raises(InfrastructureError, match=r"run-1/7-2/0-1-00000001 is not in .*claims"):
        await store.fetch(REF, 0, Claim(1, 1))


@pytest.mark.parametrize("damage", [b"", b"settle", b"settleD", b"settled and more"])
async def test_a_damaged_claim_is_never_returned_and_putting_it_again_heals_it(store, damage):
    claim = await store.keep(REF, 0, b"settled")
    (Path(store.where) / claim_name(REF, 0, claim)).write_bytes(damage)
    other = fresh(store)
    with pytest.raises(InfrastructureError, match="is damaged"):
        await other.fetch(REF, 0, claim)
    await store.keep(REF, 0, b"settled")
    assert await other.fetch(REF, 0, claim) == b"settled"


async def test_the_hot_path_touches_neither_loop_nor_disk(store, tmp_path):
    payload = await store.pack(REF, "row", b"{}")
    assert payload == Payload(b"{}")
    assert inline(payload) == b"{}"
    assert not (tmp_path / "claims").exists()


async def test_many_writers_of_one_claim_leave_it_whole(tmp_path):
    data = os.urandom(claims.INLINE_IO + 1)
    workers = [ClaimStore(str(tmp_path)) for _ in range(4)]
    kept = await asyncio.gather(*(w.keep(REF, 0, data) for w in workers for _ in range(8)))
    assert set(kept) == {claim_of(data)}
    assert await ClaimStore(str(tmp_path)).fetch(REF, 0, kept[0]) == data
    assert [f.name for f in tmp_path.rglob("*.tmp")] == []


def test_a_reader_never_sees_half_a_write(tmp_path):
    """Two versions of one name, written over and over: each read is one or the other, whole."""
    blobs = Directory(tmp_path)
    versions = [bytes([n]) * 300_000 for n in (1, 2)]
    blobs.write("r/0-0/x", versions[0])
    stop = threading.Event()

    def write():
        while not stop.is_set():
            for version in versions:
                blobs.write("r/0-0/x", version)

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(200):
            assert blobs.read("r/0-0/x") in versions
    finally:
        stop.set()
        for writer in writers:
            writer.join()


async def test_an_fsspec_file_system_stands_for_an_object_store():
    url = "memory://claims-of-a-test"
    claim = await ClaimStore(url).keep(REF, "response", b"r" * 100)
    other = ClaimStore(url)
    assert await other.fetch(REF, "response", claim) == b"r" * 100
    with pytest.raises(InfrastructureError, match=r"is not in memory://claims-of-a-test"):
        await other.fetch(REF, "row", claim)


def test_credentials_in_a_url_are_not_shown():
    assert open_blobs("memory://me:secret@bucket/x").where == "memory://***@bucket/x"


def test_file_urls_and_paths_are_local(tmp_path):
    assert open_blobs(f"file://{tmp_path}/a%20b").where == f"{tmp_path}/a b"
    assert open_blobs(str(tmp_path)).local
    assert not open_blobs("memory://x").local


async def test_a_failing_store_is_tried_again_within_the_budget(store):
    flaky = ClaimStore("memory://flaky", limits=FAST)
    real, calls = flaky._blobs.write, []

    def write(name, data):
        calls.append(name)
        if len(calls) < FAST.attempts:
            raise ConnectionError("reset")
        real(name, data)

    flaky._blobs.write = write
    claim = await flaky.keep(REF, 0, b"x")
    assert len(calls) == FAST.attempts
    assert await ClaimStore("memory://flaky").fetch(REF, 0, claim) == b"x"


async def test_a_store_that_stays_down_ends_the_rollout_after_the_budget():
    down, calls = ClaimStore("memory://down", limits=FAST), []

    def write(name, data):
        calls.append(name)
        raise ConnectionError("reset")

    down._blobs.write = write
    with pytest.raises(InfrastructureError, match=r"memory://down failed 4 times.*reset"):
        await down.keep(REF, 0, b"x")
    assert len(calls) == FAST.attempts


async def test_a_full_disk_is_not_tried_again(store):
    calls = []

    def write(name, data):
        calls.append(name)
        raise OSError(errno.ENOSPC, "No space left on device")

    store._blobs.write = write
    with pytest.raises(InfrastructureError, match="No space left"):
        await store.keep(REF, 0, b"x")
    assert len(calls) == 1


async def test_a_store_that_hangs_costs_its_deadline_and_keeps_its_thread_counted():
    limits = Limits(threads=1, waiting=1, deadline_s=0.05, attempts=1)
    hung, go_on = ClaimStore("memory://hung", limits=limits), threading.Event()
    real = hung._blobs.write

    def write(name, data):
        go_on.wait(30)
        real(name, data)

    hung._blobs.write = write
    try:
        for _ in range(2):  # the second does not even get a slot
            with pytest.raises(InfrastructureError, match=r"did not answer within 0\.05 s"):
                await hung.keep(REF, 0, b"x")
        assert hung._slots.locked()
    finally:
        go_on.set()
    async with asyncio.timeout(10):
        await hung._slots.acquire()  # free again once the thread came back


async def test_small_local_claims_stay_on_the_loop_and_large_ones_leave_it(store):
    threads = []
    real = store._blobs.write

    def write(name, data):
        threads.append(threading.current_thread() is threading.main_thread())
        real(name, data)

    store._blobs.write = write
    await store.keep(REF, 0, b"x" * claims.INLINE_IO)
    await store.keep(REF, 1, b"x" * (claims.INLINE_IO + 1))
    assert threads == [True, False]


async def test_a_claim_as_large_as_a_whole_conversation_needs_no_cache(tmp_path):
    store = ClaimStore(str(tmp_path), cache_bytes=1000)
    claim = await store.keep(REF, 0, b"x" * 5000)
    assert store._cache.held == 0
    assert await store.fetch(REF, 0, claim) == b"x" * 5000
