"""Which records a worker handles: all of them, or those of one run.

A run's own workers (`rollstream run`) share topics with others. Invariant: a record of another run is finished for this
group without being looked at; it belongs to that run's group.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas import headers
from services.runtime.record import ConsumerRecord


@dataclass(frozen=True, slots=True)
class Scope:
    """The run to which a worker is limited; empty for none."""

    run: str = ""

    def excludes(self, record: ConsumerRecord) -> bool:
        """Whether the record's header names another run. A record without the header may be anybody's."""
        if not self.run:
            return False
        found = headers.value(record.headers, headers.RUN)
        return found is not None and found != self.run.encode()
