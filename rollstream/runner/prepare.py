"""What a run begins with: rows checked and materialized, or what a former run has left.

Touches files only, so it may go on while the broker starts. Invariant: nothing of a former run is changed here; a new run's
rows are a draft until its files are opened.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from environments.registry import Registry
from rollstream.runfiles.materialize import Materialized, materialize
from rollstream.runfiles.problems import PlanError, RowProblem, summarised
from rollstream.runfiles.run_record import RunRecord, code_version, config_hash, utc_now
from rollstream.runner.dispatch import Dispatch
from rollstream.runner.plan import PlanOfRows, RunRequest, open_rows, plan_of
from rollstream.settings.model import Settings
from schemas.errors import DataError, RolloutError
from schemas.identity import SOLO
from services.sink.line_files import Mode
from services.sink.paths import RunPaths

MAX_ATTEMPTS = 3
ATTEMPTS_VARIABLE = "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS"
"""Attempts of a rollout over all resumes (platform.md A9), and what overrides them."""


class RunError(Exception):
    """The run cannot start or go on; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run ready to start: its record, what to dispatch, and the rollouts that ended before (by key: whether scored).

    `draft` are the materialized rows of a new run, which replace those of a former one when the run begins. `notes` are
    what the person should read before it does.
    """

    record: RunRecord
    plan: Dispatch
    problems: tuple[RowProblem, ...]
    ended: Mapping[bytes, bool]
    mode: Mode
    draft: Path | None = None
    notes: tuple[str, ...] = ()


def check_usable(environments: Iterable[str], registry: Registry) -> None:
    """Raises `RunError` with a line for each named environment that cannot be used here, and what to do about it."""
    lacks: list[str] = []
    for name in environments:
        try:
            registry.binding(name, None)
        except DataError as e:
            lacks.append(str(e))
    if lacks:
        raise RunError("\n".join(lacks))


def begun(request: RunRequest, settings: Settings, registry: Registry, paths: RunPaths) -> Prepared:
    """A new run of the rows that are asked for; raises `RunError`, and what the files raise."""
    try:
        plan = plan_of(request)
    except PlanError as e:
        raise RunError(str(e)) from e
    draft = paths.materialized.with_name(f".{paths.materialized.name}.new")
    found = _materialized(request, plan, registry, draft)
    record = replace(new_record(settings, arguments_of(request)), rollouts=found.rollouts)
    dispatch = Dispatch(record.run_id, paths.materialized, found.tasks)
    notes = tuple(f"note: {w}" for w in (*plan.warnings, *found.warnings))
    return Prepared(record, dispatch, found.problems, {}, Mode.FRESH, draft, notes)


def new_record(settings: Settings, arguments: Mapping[str, Any]) -> RunRecord:
    """The record of a run that begins now."""
    found = configuration(settings, arguments)
    return RunRecord(
        run_id=f"{SOLO}{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}",
        config_hash=config_hash(found),
        code_version=code_version(),
        started=utc_now(),
        **found,
    )


def configuration(settings: Settings, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What a resume must find unchanged."""
    own = {name: variant.model_dump(mode="json") for name, variant in settings.variants.items()}
    return {
        "model": {"url": settings.model.url, "name": settings.model.name},
        "models": {name: {"url": m.url, "name": m.name} for name, m in settings.models.items()},
        "arguments": {**arguments, "variants": own} if own else arguments,
    }


def arguments_of(request: RunRequest) -> dict[str, Any]:
    """What rows are made of, files by their content as well: one that was edited since makes other rows."""
    given: dict[str, Any] = {
        "environments": list(request.environments),
        "input": None if request.input is None else str(request.input),
        "input_sha256": None if request.input is None else _digest(request.find(request.input)),
        "agent": request.agent,
        "repeats": request.repeats if request.repeats is not None else 1,
        "seeds": request.add_seed,
        "limit": request.limit,
        "overrides": dict(request.overrides),
        "prompt_config": None if request.prompt_config is None else str(request.prompt_config),
        "prompt_config_sha256": None if request.prompt_config is None else _digest(request.find(request.prompt_config)),
        "skills": None if request.skills is None else str(request.skills),
    }
    return {k: v for k, v in given.items() if v not in (None, {}, False)}


def max_attempts() -> tuple[int, str | None]:
    """Attempts of a rollout in all, and what to say about a variable that is no such number."""
    text = os.environ.get(ATTEMPTS_VARIABLE, "").strip()
    if text.isascii() and text.isdecimal() and int(text) > 0:
        return int(text), None
    note = f"note: {ATTEMPTS_VARIABLE}={text} is no number of attempts; {MAX_ATTEMPTS} are made" if text else None
    return MAX_ATTEMPTS, note


def _materialized(request: RunRequest, plan: PlanOfRows, registry: Registry, output: Path) -> Materialized:
    try:
        with open_rows(request, registry) as (file, name, limit):
            found = materialize(file, name, output, replace(plan.plan, limit=limit), registry, strict=request.strict)
    except (PlanError, RolloutError) as e:
        raise RunError(str(e)) from e
    if found.path is None:
        listed = "\n".join(summarised(found.problems)[:20])
        raise RunError(f"no row can be run:\n{listed}" if listed else "there are no rows to run")
    return found


def _digest(path: Path) -> str | None:
    """None for a file that is gone: a resume takes the stored rows and does not need it."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    except OSError:
        return None
    return digest.hexdigest()
