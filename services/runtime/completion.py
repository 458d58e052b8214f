"""Which records of one partition are finished, when they finish in any order.

Owns the arithmetic of "done up to here, and these beyond". Invariants:

- A position never claims a record that was not finished: an offset counts as finished when `finish` was called for it,
  when a committed position said so, or when the broker skipped it between two records it did deliver. Transactions leave
  control records in the log, so offsets have gaps: "contiguous" means contiguous over delivered records.
- A position always fits into the commit's metadata. `has_room` turns false before a further delivery could break that,
  so a completion set is never cut short (which would mean work done twice).
"""

from __future__ import annotations

from services.runtime.delivery import Position
from services.runtime.position_codec import BITMAP_SPAN, MAX_OPEN_RUNS


class Completion:
    """Completion of the records of one partition, from a committed position on.

    `_bits` is a bit set over offsets from `_base`, the lowest offset that is not finished; bit i says that offset
    `_base + i` needs no more work. A Python integer does this well: setting a bit of a span of 20,000 offsets costs a
    copy of 2.5 KB, a few tenths of a microsecond, and the position's bitmap is its bytes.
    """

    __slots__ = ("_base", "_bits", "_last", "_open")

    def __init__(self, position: Position) -> None:
        self._base: int | None = position.offset
        self._last: int | None = None
        self._open: set[int] = set()
        self._bits = 0
        for offset in position.beyond:
            self._mark(offset)

    @property
    def open_count(self) -> int:
        """Records delivered and not finished."""
        return len(self._open)

    def deliver(self, offset: int) -> bool:
        """Note that the broker delivered `offset`; False when it needs no work, because it is finished or was delivered.

        Within one assignment a consumer delivers in order, so whatever lies between this offset and the last one can
        never come: the gap is finished.
        """
        if self._base is None:
            self._base = offset
        previous = self._base - 1 if self._last is None else self._last
        if offset <= previous and (offset < self._base or offset in self._open or self.is_finished(offset)):
            return False
        for skipped in range(max(previous + 1, self._base), offset):
            self._mark(skipped)
        self._last = max(offset, previous)
        if self.is_finished(offset):
            self._advance()
            return False
        self._open.add(offset)
        self._advance()
        return True

    def finish(self, offset: int) -> None:
        """Note that the work on `offset` is done."""
        self._open.discard(offset)
        self._mark(offset)
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

    def has_room(self, more: int) -> bool:
        """Whether `more` further records may be delivered without outgrowing the commit's metadata."""
        if self._base is None:
            return True
        width = self._bits.bit_length()
        above = max(0, (self._last or self._base) + 1 - self._base - width)
        if width + above + more <= BITMAP_SPAN:
            return True
        return width - self._bits.bit_count() + above + more <= MAX_OPEN_RUNS

    def _mark(self, offset: int) -> None:
        if self._base is not None and offset >= self._base:
            self._bits |= 1 << (offset - self._base)

    def _advance(self) -> None:
        """Move the base over finished offsets, never past a delivered one that is open."""
        bits = self._bits
        if bits & 1 and self._base is not None:
            run = (~bits & (bits + 1)).bit_length() - 1
            self._bits = bits >> run
            self._base += run
