"""Batches with header names that are not UTF-8, as aiokafka's fetcher reads them."""

import gzip
import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c
from hypothesis import given
from hypothesis import strategies as st

from services.runtime.header_names import ForgivingRecords

GZIP = 1
HEADERS = st.lists(st.tuples(st.text(max_size=9), st.one_of(st.none(), st.binary(max_size=9))), max_size=3)
RECORDS = st.lists(
    st.tuples(st.one_of(st.none(), st.binary(max_size=9)), st.binary(max_size=30), HEADERS), min_size=1, max_size=20
)


def batch_of(records, base=0, compression=0):
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for i, (key, value, headers) in enumerate(records):
        builder.append(i, 1_000 + i, key, value, headers)
    data = bytearray(builder.build())
    data[:8] = struct.pack(">q", base)
    return data


def spoiled(data, name, instead):
    at = data.index(name)
    data[at : at + len(name)] = instead
    data[17:21] = struct.pack(">I", calc_crc32c(bytes(data[21:])))
    return data


def read(records):
    found = []
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        found += [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch]
    return found


@given(st.lists(RECORDS, max_size=4), st.sampled_from((0, GZIP)))
def test_what_aiokafka_can_read_is_read_as_aiokafka_reads_it(batches, compression):
    data = b"".join(bytes(batch_of(b, base=100 * i, compression=compression)) for i, b in enumerate(batches))
    forgiving = ForgivingRecords(data)
    assert forgiving.size_in_bytes() == MemoryRecords(data).size_in_bytes()
    assert read(forgiving) == read(MemoryRecords(data))
    assert ForgivingRecords(data + data[:30]).has_next() == bool(batches), "a torn end is left to the fetcher"


@pytest.mark.parametrize("at", [0, 3, 9])
def test_a_name_that_is_no_text_is_escaped_and_nothing_else_changes(at):
    records = [(b"k", b"%d" % i, [("fine", b"\xff"), ("NAME", b"\xfe")] if i == at else [("fine", None)]) for i in range(10)]
    data = spoiled(batch_of(records, base=50), b"NAME", b"a\xff\xc3b")
    with pytest.raises(UnicodeDecodeError):
        read(MemoryRecords(bytes(data)))
    between = bytes(batch_of([(None, b"x", [])], base=10)), bytes(batch_of([(None, b"y", [])], base=90))
    found = read(ForgivingRecords(between[0] + bytes(data) + between[1]))
    expected = [
        (r[0], r[1], [("fine", b"\xff"), ("a\\xff\\xc3b", b"\xfe")] if i == at else r[2]) for i, r in enumerate(records)
    ]
    assert [f[2:] for f in found[1:-1]] == expected
    assert [f[0] for f in found] == [10, *range(50, 60), 90]


def test_a_compressed_batch_is_read_too():
    plain = spoiled(batch_of([(b"k", b"1", [("NAME", b"v")]), (b"k", b"2", [])]), b"NAME", b"\xff\xff\xff\xff")
    packed = bytes(plain[:61]) + gzip.compress(bytes(plain[61:]))
    data = bytearray(packed)
    data[8:12] = struct.pack(">i", len(data) - 12)
    data[22] |= GZIP
    data[17:21] = struct.pack(">I", calc_crc32c(bytes(data[21:])))
    assert [(f[3], f[4]) for f in read(ForgivingRecords(bytes(data)))] == [(b"1", [(r"\xff\xff\xff\xff", b"v")]), (b"2", [])]


def test_the_abort_marker_of_a_control_batch_can_be_looked_into():
    records = ForgivingRecords(bytes(batch_of([(b"\x00\x00\x00\x00", b"", [])])))
    assert next(records.next_batch()).key == b"\x00\x00\x00\x00"
