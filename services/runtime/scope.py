"""Which records a worker handles: all of them, or those of one run.

A run's own workers (`rollstream run`) share topics with others. Invariant: a record has one owner. A run's own workers finish
the records of other runs without looking at them, and shared workers do so with the records of every run that brings its
own (`schemas.identity.SOLO`); or each rollout of such a run would be played once by each.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas import headers
from schemas.identity import SOLO
from services.runtime.record import ConsumerRecord

_SOLO = SOLO.encode()


@dataclass(frozen=True, slots=True)
class Scope:
    """The run to which a worker is limited; empty for the workers that all runs share."""

    run: str = ""

    def excludes(self, record: ConsumerRecord) -> bool:
        """Whether the record's header names a run of others. A record without the header may be anybody's."""
        found = headers.value(record.headers, headers.RUN)
        if found is None:
            return False
        return found != self.run.encode() if self.run else found.startswith(_SOLO)
