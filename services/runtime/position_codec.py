"""A position's finished-beyond set as commit metadata, at most 4,096 bytes of text (the broker refuses more).

Two forms, whichever the set allows: `b` + base85 of the bitmap (bit i = offset + i is finished, least significant bit
first), short spans with many open records; `r` + base85 of run lengths as LEB128 varints (unfinished, finished,
unfinished, …, ending with a finished run), long spans with few. An empty set is the empty string, which is also what
Kafka's own tools write when they reset offsets.
"""

from __future__ import annotations

import base64
import binascii

from services.runtime.delivery import Position, UnreadablePositionError

MAX_METADATA = 4096
"""`offset.metadata.max.bytes`, the broker's default."""

_RAW_BYTES = (MAX_METADATA - 1) * 4 // 5
"""Base85 makes five characters of four bytes."""

BITMAP_SPAN = _RAW_BYTES * 8
"""A span of offsets up to this always fits as a bitmap: 26,208 offsets."""

MAX_OPEN_RUNS = _RAW_BYTES // (2 * 4) - 1
"""With at most this many unfinished records the runs always fit, however long the span: two runs a record, and four bytes hold
a run of 268 million offsets."""

_MAX_RUN = 1 << 28


def encode(position: Position) -> str:
    """Commit metadata for a position."""
    if not position.finished:
        return ""
    width = position.finished.bit_length()
    if width <= BITMAP_SPAN:
        return "b" + base64.b85encode(position.finished.to_bytes((width + 7) // 8, "little")).decode()
    return "r" + base64.b85encode(_runs(position)).decode()


def decode(offset: int, metadata: str) -> Position:
    """The position committed as `offset` and `metadata`.

    Raises `UnreadablePositionError` when the metadata is not ours.
    """
    if not metadata:
        return Position(offset)
    try:
        raw = base64.b85decode(metadata[1:])
        if metadata[0] == "b" and len(metadata) <= MAX_METADATA:
            return Position(offset, int.from_bytes(raw, "little"))
        if metadata[0] == "r":
            return Position(offset, _bits(raw))
    except (ValueError, binascii.Error, IndexError) as e:
        raise UnreadablePositionError(f"commit metadata {metadata[:40]!r} at offset {offset}: {e}") from e
    raise UnreadablePositionError(f"commit metadata {metadata[:40]!r} at offset {offset} is not rollstream's")


def _runs(position: Position) -> bytes:
    """Alternating run lengths, from the lowest bit up; the first run is unfinished and may be empty."""
    bits, lengths, finished = position.finished, [], False
    while bits:
        run = _trailing_ones(bits) if finished else _trailing_zeros(bits)
        lengths.append(run)
        bits >>= run
        finished = not finished
    return b"".join(_varint(n) for n in lengths)


def _trailing_zeros(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _trailing_ones(bits: int) -> int:
    return _trailing_zeros(~bits)


def _bits(raw: bytes) -> int:
    bits, at, finished = 0, 0, False
    for length in _varints(raw):
        if finished:
            bits |= ((1 << length) - 1) << at
        at += length
        finished = not finished
        if at > _MAX_RUN:
            raise ValueError("a span of more than 268 million offsets")
    return bits


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - LEB128: seven bits a byte
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _varints(raw: bytes) -> list[int]:
    numbers, value, shift = [], 0, 0
    for byte in raw:
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            numbers.append(value)
            value, shift = 0, 0
    if shift:
        raise ValueError("torn run length")
    return numbers
