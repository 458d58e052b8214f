"""A position's finished-beyond set as commit metadata, at most 4,096 bytes of text (the broker refuses more).

A letter, then base85 of a CRC-32 (over letter, offset and body, little-endian) and the body. Two forms, whichever the set
allows: `b`, the bitmap (bit i = offset + i is finished, least significant bit first), for short spans with many open
records; `r`, run lengths as LEB128 varints (unfinished, finished, unfinished, …, ending with a finished run), for long
spans with few. An empty set is the empty string, which is also what Kafka's own tools write when they reset offsets.

Invariant: what `decode` accepts was written by `encode` for that very offset. Other tools' notes are text too, and a word
taken for a bitmap would call records finished that nobody has seen.
"""

from __future__ import annotations

import base64
import itertools
import zlib
from collections.abc import Iterable

from services.runtime.delivery import Position, UnreadablePositionError

MAX_METADATA = 4096
"""`offset.metadata.max.bytes`, the broker's default."""

_CHECK_BYTES = 4
_BODY_BYTES = (MAX_METADATA - 1) * 4 // 5 - _CHECK_BYTES
"""Base85 makes five characters of four bytes."""

BITMAP_SPAN = _BODY_BYTES * 8
"""A span of offsets up to this always fits as a bitmap: 26,176 offsets."""

MAX_SPAN = 1 << 22
"""Offsets that a position may span, four million. The set in memory is then half a megabyte, which each record that finishes
copies: tens of microseconds. It also bounds what hostile metadata can make us allocate."""

_SHOWN = 40


def fits(span: int, unfinished: int) -> bool:
    """Whether a position over `span` offsets fits into the metadata, whichever `unfinished` of them are not finished.

    Finished and unfinished runs alternate, so there are at most two runs for each unfinished offset. A run's length takes a
    second byte from 2^7 offsets on, a third from 2^14, a fourth from 2^21, and `span` holds only so many runs that long.
    """
    if span <= BITMAP_SPAN:
        return True
    runs = 2 * unfinished
    return span <= MAX_SPAN and sum(min(runs, span >> bits) for bits in (0, 7, 14, 21)) <= _BODY_BYTES


def encode(position: Position) -> str:
    """Commit metadata for a position; raises `ValueError` when it does not fit (see `fits`)."""
    if not position.finished:
        return ""
    width = position.finished.bit_length()
    if width <= BITMAP_SPAN:
        return _sealed("b", position.offset, position.finished.to_bytes((width + 7) // 8, "little"))
    body = b"".join(_varint(n) for n in _runs(position.finished))
    if width > MAX_SPAN or len(body) > _BODY_BYTES:
        raise ValueError(f"a position over {width:,} offsets in {len(body):,} bytes does not fit into commit metadata")
    return _sealed("r", position.offset, body)


def decode(offset: int, metadata: str) -> Position:
    """The position committed as `offset` and `metadata`.

    Raises `UnreadablePositionError` when the metadata was not written by `encode` for this offset.
    """
    if not metadata:
        return Position(offset)
    try:
        form, body = _opened(offset, metadata)
        return Position(offset, int.from_bytes(body, "little") if form == "b" else _bits(_varints(body)))
    except ValueError as e:
        shown = metadata if len(metadata) <= _SHOWN else f"{metadata[:_SHOWN]}… ({len(metadata):,} characters)"
        raise UnreadablePositionError(f"commit metadata {shown!r} at offset {offset} is not rollstream's: {e}") from e


def _sealed(form: str, offset: int | None, body: bytes) -> str:
    return form + base64.b85encode(_check(form, offset, body) + body).decode()


def _opened(offset: int, metadata: str) -> tuple[str, bytes]:
    form = metadata[0]
    if form not in "br" or len(metadata) > MAX_METADATA:
        raise ValueError("neither a bitmap nor runs")
    raw = base64.b85decode(metadata[1:])
    check, body = raw[:_CHECK_BYTES], raw[_CHECK_BYTES:]
    if check != _check(form, offset, body):
        raise ValueError("wrong check sum")
    return form, body


def _check(form: str, offset: int | None, body: bytes) -> bytes:
    return zlib.crc32(body, zlib.crc32(f"{form}{offset}".encode())).to_bytes(_CHECK_BYTES, "little")


def _runs(bits: int) -> list[int]:
    """Alternating run lengths, from the lowest bit up; the first run is unfinished and may be empty.

    By way of a string of digits: shifting a long number run by run would take quadratic time.
    """
    digits = f"{bits:b}"[::-1]
    lengths: list[int] = []
    at = 0
    for digit in itertools.cycle("10"):  # an unfinished run ends at the next 1, a finished one at the next 0
        end = digits.find(digit, at)
        if end < 0:
            return [*lengths, len(digits) - at]
        lengths.append(end - at)
        at = end
    raise AssertionError("unreachable")


def _bits(lengths: Iterable[int]) -> int:
    digits, span = [], 0
    for length, digit in zip(lengths, itertools.cycle("01")):
        span += length
        if span > MAX_SPAN:
            raise ValueError(f"a span of more than {MAX_SPAN:,} offsets")
        digits.append(digit * length)
    return int("".join(digits)[::-1] or "0", 2)


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
