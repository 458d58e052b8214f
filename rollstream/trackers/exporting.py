"""Sends a run's metrics to the configured trackers, each from a process of its own.

Invariant: whatever a tracker does, `export` returns within its deadline with a note instead of an error; secrets go to the
child through its standard input and are masked in what it says.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rollstream.settings.model import Trackers
from rollstream.trackers.scalars import scalars
from schemas import jsontext

WANDB, MLFLOW = "wandb", "mlflow"
_KILLED_S = 5.0
"""A killed process is gone in milliseconds; longer waits would be for one that nobody can end."""

_SAID = 300
"""Characters of a tracker's last words that a note repeats."""


def active(trackers: Trackers) -> list[str]:
    """The trackers for which all that is needed is set."""
    wandb = (trackers.wandb_project, trackers.wandb_name, trackers.wandb_api_key)
    mlflow = (trackers.mlflow_tracking_uri, trackers.mlflow_experiment_name, trackers.mlflow_run_name)
    return [name for name, needed in ((WANDB, wandb), (MLFLOW, mlflow)) if all(needed)]


def half_set(trackers: Trackers) -> list[str]:
    """Notes about trackers of which something is set and something needed is not."""
    names = {WANDB: ("project", "name", "api_key"), MLFLOW: ("tracking_uri", "experiment_name", "run_name")}
    notes = []
    for tracker, keys in names.items():
        missing = [f"trackers.{tracker}_{key}" for key in keys if not getattr(trackers, f"{tracker}_{key}")]
        if 0 < len(missing) < len(keys):
            notes.append(f"{tracker} is not used: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set")
    return notes


async def export(
    trackers: Trackers, agents: Sequence[Mapping[str, Any]], results: Path, config: Mapping[str, Any] | None = None
) -> list[str]:
    """Send the metrics of `agents` (objects of the aggregates) and the results; a note for whatever went wrong.

    `config` says what the run was made with; it must hold no secret.
    """
    names = active(trackers)
    notes = half_set(trackers)
    if not names or not agents:
        return notes
    payload = {
        "settings": {k: v.get_secret_value() if hasattr(v, "get_secret_value") else v for k, v in dict(trackers).items()},
        "metrics": scalars(agents),
        "config": dict(config or {}),
        "results": str(results) if trackers.upload_rollouts else None,
    }
    said = await asyncio.gather(*(_child(name, payload, trackers.timeout_s) for name in names))
    return [*notes, *(note for note in said if note)]


async def _child(name: str, payload: Mapping[str, Any], timeout_s: float) -> str | None:
    """Run one exporter; what to say when it did not succeed, or has something to say."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "rollstream.trackers.child",
        name,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(timeout_s):
            out, err = await process.communicate(jsontext.dumps(payload))
    except TimeoutError:
        return f"{name} did not answer within {timeout_s:g} s; the metrics are in the files"
    finally:
        await _end(process)
    if process.returncode:
        last = (err.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"])[-1]
        return f"{name} got no metrics: {_masked(last, payload['settings'])[:_SAID]}"
    return _masked(out.decode("utf-8", "replace").strip(), payload["settings"])[:_SAID] or None


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the child with whatever it has started (a tracker's own service)."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(_KILLED_S):
            await process.wait()


def _masked(text: str, settings: Mapping[str, Any]) -> str:
    for key in ("wandb_api_key", "mlflow_tracking_token"):
        if settings.get(key):
            text = text.replace(str(settings[key]), "********")
    return text
