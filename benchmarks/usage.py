"""CPU time of this process over an interval."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """User and system CPU seconds, and wall seconds, at a moment."""

    cpu: float
    wall: float

    def since(self, earlier: Sample) -> Sample:
        return Sample(self.cpu - earlier.cpu, self.wall - earlier.wall)


def now() -> Sample:
    times = os.times()
    return Sample(times.user + times.system, time.perf_counter())
