"""Lines of one partition, gathered until they are worth a file.

Owns which line goes into which file. Invariant: the files of a range of offsets are a function of the range and the
log alone: one a run and kind of line, named by the first offset of the range, lines in order of offset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from schemas import headers
from schemas.identity import is_id
from services.runtime.record import Outgoing, TopicPartition
from services.sink.step import FAILURES, offset_of

UNNAMED = "_unnamed"
"""Folder of records whose run is not a legal id (which could otherwise name any path)."""

_TOPIC_OF_FAILURES = "failures"


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets from `first` to `last`, both of records that became lines."""

    first: int
    last: int


@dataclass(slots=True)
class Gathered:
    """Lines by offset, in any order of arrival."""

    partition: TopicPartition
    lines: dict[int, list[Outgoing]] = field(default_factory=dict)
    count: int = 0
    size: int = 0

    def add(self, outputs: Sequence[Outgoing]) -> None:
        """Take lines; those of one record replace each other, so a record that comes again is there once."""
        fresh: dict[int, list[Outgoing]] = {}
        for out in outputs:
            fresh.setdefault(offset_of(out), []).append(out)
        for offset, some in fresh.items():
            self._remove(offset)
            self.lines[offset] = some
            self.count += len(some)
            self.size += sum(len(o.value) for o in some)

    def range_below(self, end: int) -> Range | None:
        """The range of the lines below offset `end`, if there are any."""
        below = [o for o in self.lines if o < end]
        return Range(min(below), max(below)) if below else None

    def files(self, span: Range) -> Mapping[str, bytes]:
        """The files of a range, by name."""
        found: dict[str, bytearray] = {}
        for offset in sorted(o for o in self.lines if span.first <= o <= span.last):
            for out in self.lines[offset]:
                found.setdefault(self._name(out, span.first), bytearray()).extend(out.value + b"\n")
        return {name: bytes(data) for name, data in found.items()}

    def names(self, span: Range) -> set[str]:
        """The names of `files`, without their content."""
        return {self._name(out, span.first) for o, some in self.lines.items() if span.first <= o <= span.last for out in some}

    def drop_below(self, end: int) -> None:
        for offset in [o for o in self.lines if o < end]:
            self._remove(offset)

    def _remove(self, offset: int) -> None:
        gone = self.lines.pop(offset, [])
        self.count -= len(gone)
        self.size -= sum(len(o.value) for o in gone)

    def _name(self, out: Outgoing, first: int) -> str:
        run = (headers.value(out.headers, headers.RUN) or b"").decode(errors="replace")
        topic = self.partition.topic.rpartition(".")[2]
        kind = f"failures-{topic}" if out.topic == FAILURES and topic != _TOPIC_OF_FAILURES else topic
        return f"{run if is_id(run) else UNNAMED}/{kind}-{self.partition.partition:05}-{first:020}.jsonl"
