"""Which records of one partition are finished, when they finish in any order.

Owns the arithmetic of "done up to here, and these beyond". Invariants:

- A position never claims a record that was not finished: an offset counts as finished when `finish` was called for it,
  when a committed position said so, or when the broker skipped it between two records it did deliver. Transactions leave
  control records in the log, so offsets have gaps: "contiguous" means contiguous over delivered records.
- A position always fits into the commit's metadata, as long as nothing is delivered for which `has_room` was false. A
  completion set is never cut short (which would mean work done twice).
"""

from __future__ import annotations

from collections.abc import Collection

from services.runtime import position_codec
from services.runtime.delivery import Position


class Completion:
    """Completion of the records of one partition, from a committed position on.

    `_bits` is a bit set over offsets from `_base`, the lowest offset that is not finished; bit i says that offset
    `_base + i` needs no more work. A Python integer does this well: setting a bit of a span of 20,000 offsets costs a
    copy of 2.5 KB, a few tenths of a microsecond, and the position's bitmap is its bytes. `_last` is the last offset
    delivered, `_open` what was delivered and is not finished.
    """

    __slots__ = ("_base", "_bits", "_last", "_open")

    def __init__(self, position: Position) -> None:
        self._base: int | None = position.offset
        self._last: int | None = None
        self._open: set[int] = set()
        self._bits = position.finished
        self._advance()

    @property
    def open_count(self) -> int:
        """Records delivered and not finished."""
        return len(self._open)

    @property
    def is_placed(self) -> bool:
        """Whether there is an offset to commit: where nothing was ever committed, the first delivery says where to begin."""
        return self._base is not None

    def deliver(self, offset: int) -> bool:
        """Note that the broker delivered `offset`; False when it needs no work, because it is finished or was delivered.

        Within one assignment a consumer delivers in order, so whatever lies between this offset and the last one can
        never come: the gap is finished.
        """
        if self._base is None:
            self._base = offset
        due = self._due(self._base)
        if offset < due:
            return False
        self._skip(due, offset)
        self._last = offset
        needed = not self.is_finished(offset)
        if needed:
            self._open.add(offset)
        self._advance()
        return needed

    def finish(self, offset: int) -> None:
        """Note that the work on `offset` is done."""
        self._open.discard(offset)
        if self._base is not None and offset >= self._base:
            self._bits |= 1 << (offset - self._base)
        self._advance()

    def is_finished(self, offset: int) -> bool:
        """Whether `offset` needs no more work."""
        if self._base is None:
            return False
        return offset < self._base or bool(self._bits >> (offset - self._base) & 1)

    def position(self) -> Position:
        """What may be committed now."""
        if self._base is None:
            return Position()
        return Position(self._base, self._bits)

    def has_room(self, more: int = 1, offset: int | None = None) -> bool:
        """Whether `more` further records may be delivered without outgrowing the commit's metadata.

        `offset` is that of the first of them; by default they follow the last one without a gap. A record within what the
        position tells of already has room: its delivery makes nothing larger.
        """
        if self._base is None:
            return True
        due = self._due(self._base)
        first = due if offset is None else offset
        if first < self._base + self._bits.bit_length():
            return True
        lowest = first if due == self._base else self._base  # with nothing open, the base moves over the gap
        return position_codec.fits(first + more - lowest, len(self._open) + more)

    def can_finish(self, offsets: Collection[int]) -> bool:
        """Whether all of `offsets` could be finished before anything else is delivered, and the position still fit."""
        if self._base is None or not offsets:
            return True
        width = self._bits.bit_length()
        unknown = width - self._bits.bit_count() + sum(o >= self._base + width for o in offsets)
        return position_codec.fits(max(offsets) + 1 - self._base, unknown)

    def _due(self, base: int) -> int:
        """The lowest offset that has not been delivered and may still be."""
        return base if self._last is None else max(base, self._last + 1)

    def _skip(self, start: int, stop: int) -> None:
        """Count the offsets from `start` to before `stop` as finished."""
        if self._base is None or start >= stop:
            return
        if start == self._base:  # nothing below is open: however long the gap, it costs nothing
            self._base = stop
            self._bits >>= stop - start
        else:
            self._bits |= ((1 << (stop - start)) - 1) << (start - self._base)

    def _advance(self) -> None:
        """Move the base over finished offsets, never past a delivered one that is open."""
        bits = self._bits
        if bits & 1 and self._base is not None:
            run = (~bits & (bits + 1)).bit_length() - 1
            self._bits = bits >> run
            self._base += run
