"""Commit metadata: everything that is written can be read, and nothing else is taken for a position."""

import base64
import random
import time
import tracemalloc
import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.runtime.delivery import Position, UnreadablePositionError
from services.runtime.position_codec import BITMAP_SPAN, MAX_METADATA, MAX_SPAN, decode, encode, fits

OFFSETS = st.integers(0, 2**63 - 1)


def from_runs(runs):
    """Unfinished, finished, unfinished, …"""
    bits, at = 0, 0
    for i, n in enumerate(runs):
        bits |= ((1 << n) - 1) * (i % 2) << at
        at += n
    return bits


SETS = st.one_of(
    st.integers(0, 2**200),
    st.lists(st.integers(1, 5_000), min_size=1, max_size=300).map(from_runs),
    st.lists(st.integers(1, 100_000), min_size=1, max_size=30).map(from_runs),
)


def sealed(form, offset, body):
    """Metadata with a right check sum, whatever its body."""
    check = zlib.crc32(form.encode() + str(offset).encode() + body)
    return form + base64.b85encode(check.to_bytes(4, "little") + body).decode()


@given(OFFSETS, SETS)
@example(0, 1 << (BITMAP_SPAN - 1))
@example(0, 1 << BITMAP_SPAN)
@example(0, (1 << BITMAP_SPAN) - 1)
@example(0, 1 << (MAX_SPAN - 1))
@example(2**63 - 1, (1 << MAX_SPAN) - 1)
def test_what_is_written_is_read(offset, finished):
    metadata = encode(Position(offset, finished))
    assert len(metadata) <= MAX_METADATA
    assert metadata.isascii()
    assert decode(offset, metadata) == Position(offset, finished)


def test_an_empty_set_is_the_empty_string():
    assert encode(Position(5)) == ""
    assert decode(5, "") == Position(5)


@given(st.integers(1, MAX_SPAN), st.integers(1, 4_000), st.integers(0, 2**32))
def test_what_fits_is_written_whichever_offsets_are_open(span, unfinished, seed):
    """`fits` is a promise about every set with so many open offsets; the offset at the bottom is open."""
    if not fits(span, unfinished):
        return
    rng = random.Random(seed)
    few = min(unfinished, span - 1)
    if rng.random() < 0.5:
        holes = rng.sample(range(span), few)
    else:  # runs just long enough for a longer length: the dearest pattern
        step = rng.choice((2, 129, 16_385, max(2, span // (few + 1))))
        holes = [i * step for i in range(few) if i * step < span - 1]
    finished = (1 << span) - 1
    for hole in {0, *holes[: unfinished - 1]}:
        finished &= ~(1 << hole)
    assert len(encode(Position(0, finished))) <= MAX_METADATA


def test_room_is_not_given_away():
    """With one open record the span may be the largest; a bitmap's span may be as open as it likes."""
    assert fits(MAX_SPAN, 1)
    assert not fits(MAX_SPAN + 1, 1)
    assert fits(BITMAP_SPAN, BITMAP_SPAN)
    assert fits(30_000, 1_500)
    assert fits(200_000, 800)


def test_what_does_not_fit_is_refused_and_never_cut():
    with pytest.raises(ValueError, match="does not fit"):
        encode(Position(0, from_runs([2, 2] * 10_000)))
    with pytest.raises(ValueError, match="does not fit"):
        encode(Position(0, 1 << MAX_SPAN))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "b",
            "r",
            "x",
            "batch-42",
            "backup",
            "reset by ops 2025",
            "restored",
            "rewind",
            "{}",
            '{"owner":"b"}',
            " ",
            "\n",
            "\0",
        ),
        *("böse", "b" * 4096, "r" * 4096, "b" * 5_000, "r" + "z" * 1_000_000, "b€", "r0", "b~~~~~", "r~~~~~~", "b{{{{{{{"),
    ],
)
def test_other_tools_notes_are_no_positions(text):
    with pytest.raises(UnreadablePositionError, match="not rollstream's"):
        decode(7, text)


@given(st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=60), st.sampled_from(("", "b", "r")))
def test_any_text_is_no_position(text, form):
    with pytest.raises(UnreadablePositionError):
        decode(7, form + text)


@given(SETS.filter(bool), st.data())
def test_damaged_metadata_is_refused(finished, data):
    metadata = encode(Position(1_000, finished))
    at = data.draw(st.integers(0, len(metadata) - 1), label="at")
    with pytest.raises(UnreadablePositionError):
        decode(1_000, metadata[:at] or "b")
    other = data.draw(st.characters(min_codepoint=33, max_codepoint=126).filter(lambda c: c != metadata[at]), label="other")
    with pytest.raises(UnreadablePositionError):
        decode(1_000, metadata[:at] + other + metadata[at + 1 :])


def test_metadata_belongs_to_its_offset():
    """A tool that moves the offset and keeps the metadata would call other records finished."""
    metadata = encode(Position(1_000, 0b1010))
    with pytest.raises(UnreadablePositionError):
        decode(1_001, metadata)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\x00" + b"\xff" * 9 + b"\x7f", id="a finished run of 2^70"),
        pytest.param(b"\xff" * 9 + b"\x7f" + b"\x01", id="an unfinished run of 2^70"),
        pytest.param(b"\xff" * 3_000 + b"\x01", id="a run length of 3,000 bytes"),
        pytest.param(b"\xfe\xff\xff\x7f" + b"\x01" * 3_000, id="a far start and 3,000 short runs"),
        pytest.param(b"\xfe\xff\x7f" + b"\x01" * 3_000, id="as far as a span may go, and 3,000 short runs"),
        pytest.param(b"\xff", id="torn"),
        pytest.param(b"\x00" * 3_000, id="empty runs"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_hostile_runs_neither_hang_nor_fill_the_memory(body):
    metadata = sealed("r", 7, body)
    tracemalloc.start()
    began = time.process_time()
    try:
        position = decode(7, metadata)
    except UnreadablePositionError:
        pass
    else:
        assert position.finished.bit_length() <= MAX_SPAN
    took, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert took < 2
    assert peak < 64 << 20


def test_a_long_error_shows_only_its_beginning():
    with pytest.raises(UnreadablePositionError) as caught:
        decode(7, "x" * 100_000)
    assert len(str(caught.value)) < 250
    assert "100,000 characters" in str(caught.value)


def test_the_offsets_beyond_a_long_position_are_listed_in_linear_time():
    position = Position(10, (1 << (MAX_SPAN - 1)) | 0b100)
    began = time.process_time()
    assert position.beyond == [12, 10 + MAX_SPAN - 1]
    assert time.process_time() - began < 5
