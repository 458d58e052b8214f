"""Bounds of a worker's live sessions. Beside the service, so that settings can be read without loading it."""

from __future__ import annotations

from dataclasses import dataclass

WAIT_S = 60.0
"""How long a rollout waits for one of the sessions to become idle: well under the time that all tools of a turn have."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Bounds of a worker's sessions; times in seconds. `rebuild_s`: of executing a journal again."""

    limit: int = 32
    idle_s: float = 900.0
    rebuild_s: float = 120.0
    wait_s: float = WAIT_S
