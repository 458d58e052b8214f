"""How a worker runs model-written code, as configured. Invariant: the name `auto` never stands for an unsafe back end."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

Name = Literal["auto", "bwrap", "landlock", "rlimits", "container"]


@dataclass(frozen=True, slots=True)
class Options:
    """How a worker runs model-written code. `slots`: programs at once (0: as many as processors). `spare`: idle boxes.

    `image` and `engine` (a Unix socket; empty: the usual places) belong to the container back end.
    """

    backend: Name = "auto"
    slots: int = 0
    spare: int = 2
    image: str = ""
    engine: str = ""

    @property
    def concurrency(self) -> int:
        return self.slots or os.cpu_count() or 1
