"""The shelf gives back what was put on it, and holds no more in memory and on disk than it may."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.runtime.scripted import P1, record

from services.runtime.delivery import StopWorkerError
from services.runtime.record import ConsumerRecord
from services.runtime.shelf import _OVERHEAD, Shelf

headers = st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=5)), max_size=3).map(tuple)
values = st.one_of(st.none(), st.binary(max_size=3_000))


def made(offset, value, key=b"k", more=()):
    return ConsumerRecord("in", 3, offset, 17, 0, key, value, None, 1, 1, more)


@given(
    st.lists(st.tuples(st.integers(0, 3), values, st.one_of(st.none(), st.binary(max_size=9)), headers), max_size=30),
    st.integers(0, 20_000),
    st.integers(0, 20_000),
)
def test_what_is_taken_is_what_was_put(tmp_path_factory, puts, memory, disk):
    shelf = Shelf(memory, disk, tmp_path_factory.getbasetemp())
    expected = {}
    for offset, (number, value, key, more) in enumerate(puts):
        shelf.put(number, made(offset, value, key, more))
        expected.setdefault(number, []).append(made(offset, value, key, more))
    for number in range(4):
        assert shelf.take(number) == expected.get(number, [])
        assert shelf.take(number) == []
    assert (shelf.memory, shelf.disk) == (0, 0)
    shelf.close()


def test_beyond_the_memory_records_go_to_files_that_are_removed_with_them(tmp_path):
    shelf = Shelf(3 * (_OVERHEAD + 100), 1 << 20, tmp_path)
    for offset in range(10):
        shelf.put(offset % 2, record(offset, P1, b"x" * 90))
    assert shelf.memory <= 3 * (_OVERHEAD + 100)
    (folder,) = tmp_path.iterdir()
    assert sorted(f.name for f in folder.iterdir()) == ["0", "1"]
    assert folder.stat().st_mode & 0o077 == 0, "nobody else's business"
    shelf.take(0)
    shelf.drop(1)
    shelf.drop(7)
    assert not list(folder.iterdir())
    assert not shelf.full
    shelf.close()
    assert not list(tmp_path.iterdir())


def test_full_is_said_and_nothing_is_refused(tmp_path):
    shelf = Shelf(2_000, 2_000, tmp_path)
    count = 0
    while not shelf.full:
        shelf.put(count, record(count, value=b"x" * 500))
        count += 1
    assert count < 10
    shelf.put(99, record(99))
    assert shelf.take(99) == [record(99)]
    shelf.close()


def test_a_disk_that_is_full_leaves_records_in_memory(tmp_path, monkeypatch):
    shelf = Shelf(0, 1 << 20, tmp_path)
    shelf.put(1, record(4))
    monkeypatch.setattr("marshal.dumps", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    shelf.put(1, record(5))
    assert shelf.full
    assert shelf.take(1) == [record(4), record(5)]
    shelf.close()


@pytest.mark.parametrize("damage", ["gone", "torn"])
def test_what_cannot_be_read_back_stops_the_worker(tmp_path, damage):
    shelf = Shelf(0, 1 << 20, tmp_path)
    shelf.put(1, record(5))
    (file,) = [f for folder in tmp_path.iterdir() for f in folder.iterdir()]
    file.unlink() if damage == "gone" else file.write_bytes(b"\xe3")
    with pytest.raises(StopWorkerError, match="Nothing is lost"):
        shelf.take(1)
    shelf.close()
