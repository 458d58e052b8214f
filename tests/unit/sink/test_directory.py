from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fsspec
import pytest

from schemas import headers
from services.runtime.delivery import FencedError, Position
from services.runtime.record import Outgoing, TopicPartition
from services.sink.directory import Directory, FlushLimits
from services.sink.step import OFFSET, RESULTS
from services.sink.stopped import SinkStoppedError
from services.sink.store import LocalStore, Store, open_store

TP = TopicPartition("rollstream.scored-rollouts", 7)
MANY = FlushLimits(1000, 1 << 30, 1e9)


class Kafka:
    def __init__(self) -> None:
        self.position = Position()
        self.history: list[Position] = []
        self.error: Exception | None = None
        self.applies = False

    async def open(self) -> Position:
        return self.position

    async def commit(self, outputs: Sequence[Outgoing], position: Position) -> None:
        if self.error is not None and not self.applies:
            raise self.error
        self.position = position
        self.history.append(position)
        if self.error is not None:
            raise self.error

    async def close(self) -> None: ...


def line(offset: int, run: str = "r", text: bytes = b"{}") -> Outgoing:
    return Outgoing(RESULTS, None, text, ((headers.RUN, run.encode()), (OFFSET, b"%d" % offset)))


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - turns of the loop, not time
        await asyncio.sleep(0)


def tree(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


async def test_files_are_named_by_run_topic_partition_and_first_offset(tmp_path: Path) -> None:
    kafka = Kafka()
    delivery = Directory(tmp_path, lambda _: kafka, limits=MANY).delivery(TP)
    assert await delivery.open() == Position()
    await delivery.commit([line(5, text=b"1"), line(6, "s", b"2"), line(9, text=b"3")], Position(12))
    assert tree(tmp_path) == {}
    await delivery.flush()
    assert tree(tmp_path) == {
        "r/scored-rollouts-00007-00000000000000000005.jsonl": b"1\n3\n",
        "s/scored-rollouts-00007-00000000000000000005.jsonl": b"2\n",
    }
    assert kafka.history == [Position(5, 0b10000), Position(12)]


async def test_limits_of_lines_and_bytes_flush_at_once(tmp_path: Path) -> None:
    for limits, lines in ((FlushLimits(2, 1 << 30, 1e9), 2), (FlushLimits(1000, 10, 1e9), 2)):
        kafka = Kafka()
        delivery = Directory(tmp_path / str(limits.lines), lambda _, k=kafka: k, limits=limits).delivery(TP)
        await delivery.open()
        await delivery.commit([line(0, text=b"12345")], Position(1))
        assert kafka.history == []
        await delivery.commit([line(1, text=b"12345")], Position(lines))
        assert kafka.position == Position(2)
        await delivery.close()


async def test_time_flushes_what_is_held_and_records_without_lines(tmp_path: Path) -> None:
    waits: list[float] = []
    tick = asyncio.Event()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await tick.wait()

    kafka = Kafka()
    delivery = Directory(tmp_path, lambda _: kafka, limits=FlushLimits(1000, 1 << 30, 3.0), sleep=sleep).delivery(TP)
    await delivery.open()
    await delivery.commit([line(0)], Position(1))
    await delivery.commit([], Position(8))
    await asyncio.sleep(0)
    assert waits == [3.0]
    tick.set()
    await until(lambda: kafka.position == Position(8))
    assert len(tree(tmp_path)) == 1
    await delivery.close()


async def test_close_writes_what_is_held(tmp_path: Path) -> None:
    kafka = Kafka()
    delivery = Directory(tmp_path, lambda _: kafka, limits=MANY).delivery(TP)
    await delivery.open()
    await delivery.commit([line(0)], Position(1))
    await delivery.close()
    assert (kafka.position, len(tree(tmp_path))) == (Position(1), 1)
    with pytest.raises(FencedError):
        await delivery.commit([line(1)], Position(2))


@pytest.mark.parametrize("applies", [False, True])
async def test_a_broker_that_was_away_is_waited_for(tmp_path: Path, applies: bool) -> None:
    """Whether its commits had been applied or not when they seemed to fail."""
    waits: list[float] = []
    kafka = Kafka()
    kafka.applies = applies

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        kafka.error = TimeoutError("no answer") if len(waits) < 4 else None
        await asyncio.sleep(0)

    delivery = Directory(tmp_path, lambda _: kafka, limits=MANY, sleep=sleep).delivery(TP)
    await delivery.open()
    await delivery.commit([line(0)], Position(1))
    await until(lambda: kafka.position == Position(1))
    assert waits == [1e9, 1.0, 1.0, *([] if applies else [1.0])]
    assert len(tree(tmp_path)) == 1
    await delivery.close()


async def test_a_file_of_somebody_else_is_not_overwritten(tmp_path: Path) -> None:
    foreign = tmp_path / "r" / "scored-rollouts-00007-00000000000000000000.jsonl"
    foreign.parent.mkdir()
    foreign.write_bytes(b"theirs\n")
    kafka = Kafka()
    delivery = Directory(tmp_path, lambda _: kafka, limits=MANY).delivery(TP)
    await delivery.open()
    await delivery.commit([line(0)], Position(1))
    with pytest.raises(SinkStoppedError, match="is there already, and not by this consumer group"):
        await delivery.flush()
    assert (kafka.position, foreign.read_bytes()) == (Position(0), b"theirs\n")


class Full(LocalStore):
    on = True

    async def put(self, name: str, data: bytes) -> None:
        if self.on:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        await super().put(name, data)


async def test_a_full_disk_stops_and_can_be_resumed(tmp_path: Path) -> None:
    kafka, store, heard = Kafka(), Full(tmp_path), []

    async def at_once(_: float) -> None: ...

    directory = Directory(tmp_path, lambda _: kafka, limits=MANY, store=store, sleep=at_once, on_fatal=heard.append)
    delivery = directory.delivery(TP)
    await delivery.open()
    await delivery.commit([line(4)], Position(5))
    await until(lambda: bool(heard))
    assert str(heard[0]).startswith(
        f"cannot write {tmp_path}/r/scored-rollouts-00007-00000000000000000004.jsonl: No space left"
    )
    with pytest.raises(SinkStoppedError):
        await delivery.commit([line(5)], Position(6))
    await delivery.close()
    store.on = False
    resumed = Directory(tmp_path, lambda _: kafka, limits=MANY, store=store).delivery(TP)
    assert await resumed.open() == Position(4)
    await resumed.commit([line(4), line(5)], Position(6))
    await resumed.close()
    assert tree(tmp_path) == {
        "r/scored-rollouts-00007-00000000000000000004.jsonl": b"{}\n",
        "r/scored-rollouts-00007-00000000000000000005.jsonl": b"{}\n",
    }


async def test_stores_put_whole_files(tmp_path: Path) -> None:
    memory: Any = fsspec.filesystem("memory")
    stores: list[Store] = [
        open_store(tmp_path / "a"),
        open_store(f"file://{tmp_path}/b"),
        open_store("memory://rollstream-test/c"),
    ]
    for store in stores:
        assert not await store.exists("run/x.jsonl")
        await store.put("run/x.jsonl", b"1\n")
        await store.put("run/x.jsonl", b"1\n")
        assert await store.exists("run/x.jsonl")
    assert tree(tmp_path) == {"a/run/x.jsonl": b"1\n", "b/run/x.jsonl": b"1\n"}
    assert memory.cat_file("/rollstream-test/c/run/x.jsonl") == b"1\n"
    memory.rm("/rollstream-test", recursive=True)


async def test_temporary_files_of_a_killed_writer_are_removed(tmp_path: Path) -> None:
    left = tmp_path / "run" / ".x.jsonl.deadbeef.tmp"
    left.parent.mkdir()
    left.write_bytes(b"half")
    await open_store(tmp_path).put("run/x.jsonl", b"1\n")
    assert tree(tmp_path) == {"run/x.jsonl": b"1\n"}


def test_credentials_in_a_url_are_not_shown() -> None:
    assert open_store("memory://key:secret@bucket/x").where == "memory://bucket/x"
