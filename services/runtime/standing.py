"""Whether a rollout may go on: the question every stage asks before it works on one."""

from __future__ import annotations

from schemas.errors import RolloutCancelled, RolloutExpired
from schemas.events import Rollout
from services.runtime.control import Control


def check_running(control: Control, run_id: str) -> None:
    """Raises `RolloutCancelled` when the run has been cancelled."""
    if control.is_cancelled(run_id):
        raise RolloutCancelled(f"run {run_id} is cancelled")


def check_standing(control: Control, rollout: Rollout, now_s: float, what: str) -> None:
    """Raises `RolloutCancelled`, or `RolloutExpired` when the deadline passed before `what`; `now_s` is epoch seconds."""
    check_running(control, rollout.ref.run_id)
    if rollout.deadline_ms and now_s * 1000 >= rollout.deadline_ms:
        raise RolloutExpired(f"the rollout's deadline passed before {what}")
