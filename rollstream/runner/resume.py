"""Going on with a run from its files, ours or the reference's (platform.md B6).

Invariant: what is dispatched are the stored rows; dataset and flags are not read again, and where they can be seen to have
changed the run is refused unless somebody allows it. A rollout that has a result, or no attempt left, is not dispatched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from environments.registry import Registry
from rollstream.runfiles.expansion import AgentChecks
from rollstream.runfiles.problems import RowProblem
from rollstream.runfiles.readers import JsonLines, Key, MalformedLineError, Tries, done_keys, failed_tries, key_of
from rollstream.runfiles.run_record import RunRecord, RunRecordError, config_hash, read_run_record, utc_now, without_secrets
from rollstream.runner.dispatch import Dispatch
from rollstream.runner.plan import RunRequest
from rollstream.runner.prepare import Prepared, RunError, arguments_of, begun, configuration, max_attempts, new_record
from rollstream.settings.model import Settings
from schemas import jsontext
from schemas.errors import DataError
from schemas.rows import AGENT_REF, ROLLOUT_INDEX, TASK_INDEX, agent_name, check_row
from services.sink.line_files import Mode
from services.sink.paths import RunPaths
from services.sink.step import rollout_key


def prepare(request: RunRequest, settings: Settings, registry: Registry, paths: RunPaths) -> Prepared:
    """A new run, or the one in the output where a resume is asked for and there is one.

    Raises `RunError` for what cannot be run or resumed, and what the files raise.
    """
    if not request.resume:
        return begun(request, settings, registry, paths)
    missing = _missing(paths)
    if not missing:
        try:
            return _resumed(request, settings, registry, paths)
        except (MalformedLineError, RunRecordError) as e:
            raise RunError(f"cannot resume: {e}") from e
    said = f"nothing to resume: {' and '.join(map(str, missing))} {'is' if len(missing) == 1 else 'are'} missing"
    if paths.results not in missing and paths.results.stat().st_size:
        raise RunError(
            f"{said}, and a new run would clear the results in {paths.results}; put the rows back, name another --output, "
            "or run without --resume to start anew"
        )
    if not request.has_source:
        raise RunError(f"{said}; name what to run to start anew")
    fresh = begun(request, settings, registry, paths)
    return replace(fresh, notes=(f"{said}; a new run begins", *fresh.notes))


def _missing(paths: RunPaths) -> list[Path]:
    return [p for p in (paths.materialized, paths.results) if not p.exists()]


def _resumed(request: RunRequest, settings: Settings, registry: Registry, paths: RunPaths) -> Prepared:
    stored = read_run_record(paths.run)
    record, notes = _checked(stored, request, settings, paths) if stored else _adopted(settings, paths)
    cap, note = max_attempts()
    notes += [note] if note else []
    done, failed = done_keys(paths.results), failed_tries(paths.failures)
    tries = {k: t for k, t in failed.items() if k not in done}
    again = {k: t.count for k, t in tries.items() if not t.terminal and t.count < cap}
    over = {*done, *tries} - again.keys()
    rows = _StoredRows.read(paths.materialized, registry, over)
    notes += rows.notes
    notes.append(_summary(rows, done, failed, tries, cap))
    ended = {rollout_key(record.run_id, *k): k in done for k in over & rows.keys}
    skip = frozenset((*k, 0) for k in over) | {(*k, again.get(k, 0)) for k in rows.refused}
    plan = Dispatch(record.run_id, paths.materialized, rows.sizes, skip, again)
    record = replace(record, ended=None, rollouts=len(rows.keys - rows.refused))
    return Prepared(record, plan, tuple(rows.problems), ended, Mode.RESUME, notes=tuple(notes))


def _checked(stored: RunRecord, request: RunRequest, settings: Settings, paths: RunPaths) -> tuple[RunRecord, list[str]]:
    """The record of a run of ours, when the configuration is still its own."""
    now = configuration(settings, arguments_of(request))
    changes = _changes(stored, now, request)
    if not changes:
        return stored, []
    listed = "\n".join(f"  {change}" for change in changes)
    if not request.allow_changes:
        raise RunError(
            f"{paths.run} says that this run was made with another configuration (stored, then now):\n{listed}\n"
            "repeat the first command with --resume, choose another --output, or go on all the same with --allow-changes "
            "(the stored rows are used; what changed is noted in the record)"
        )
    noted = [*stored.changes, *(f"{utc_now()} {change}" for change in changes)]
    record = replace(stored, changes=noted, model=now["model"], models=now["models"])
    record = replace(record, config_hash=config_hash({**now, "arguments": stored.arguments}))
    return record, [f"note: resumed with another configuration than before:\n{listed}"]


def _changes(stored: RunRecord, now: Mapping[str, Any], request: RunRequest) -> list[str]:
    """What differs, a line each. Of the arguments, without a source, only those that are given again count."""
    before, after = (_flat(without_secrets(c)) for c in ({"model": stored.model, "models": stored.models}, _models(now)))
    before |= _flat(without_secrets(stored.arguments))
    given = _flat(without_secrets(now["arguments"]))
    after |= given
    keys = [k for k in {**before, **after} if before.get(k) != after.get(k)]
    if not request.has_source:
        implied = set() if request.repeats is not None else {"repeats"}
        keys = [k for k in keys if k.startswith(("model", "variants.")) or (k in given and k not in implied)]
    return [f"{k}: {_shown(before.get(k))} → {_shown(after.get(k))}" for k in keys if not _gone(k, given)]


def _models(now: Mapping[str, Any]) -> dict[str, Any]:
    return {"model": now["model"], "models": now["models"]}


def _gone(key: str, given: Mapping[str, Any]) -> bool:
    """Whether a digest is missing because its file is, which does not matter: the rows are stored."""
    return key.endswith("_sha256") and key not in given and key.removesuffix("_sha256") in given


def _flat(value: Any, key: str = "") -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {k: v for name, inner in value.items() for k, v in _flat(inner, f"{key}.{name}" if key else str(name)).items()}
    return {} if value in (None, [], 0, False) else {key: value}


def _shown(value: Any) -> str:
    return "none" if value is None else jsontext.dumps(value).decode("utf-8", "replace")


def _adopted(settings: Settings, paths: RunPaths) -> tuple[RunRecord, list[str]]:
    """A record for a run that has none: the reference's, or one of ours whose record is lost."""
    record = new_record(settings, {"adopted": str(paths.results)})
    return record, [f"note: {paths.run} is missing: whether the model was another then cannot be told; going on with its rows"]


@dataclass(slots=True)
class _StoredRows:
    """The materialized rows: which rollouts they are, how many each task has, and those that cannot be dispatched."""

    keys: set[Key] = field(default_factory=set)
    sizes: Counter[int] = field(default_factory=Counter)
    refused: set[Key] = field(default_factory=set)
    problems: list[RowProblem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path, registry: Registry, over: set[Key]) -> _StoredRows:
        """Rows of rollouts that are `over` are only counted; the others have to be such as a new run would take."""
        found, agents, rows = cls(), AgentChecks(registry), JsonLines(path)
        for number, row in rows.numbered():
            key = key_of(row)
            reason = "" if key in over else _reason(row, agents)
            if key is None or key in found.keys:
                what = f"no {TASK_INDEX} and {ROLLOUT_INDEX}" if key is None else f"rollout {key[0]}:{key[1]} occurs twice"
                found.problems.append(RowProblem(str(path), number, what))
                continue
            found.keys.add(key)
            found.sizes[key[0]] += 1
            if reason:
                found.refused.add(key)
                found.problems.append(RowProblem(str(path), number, reason, jsontext.dumps(row)))
        found.notes += [f"note: {rows.torn}"] if rows.torn else []
        return found


def _reason(row: dict[str, Any], agents: AgentChecks) -> str:
    """Why a stored row cannot be dispatched; empty when it can."""
    try:
        agent = agent_name(check_row(row))
        if agent is None:
            raise DataError(f"the row has no {AGENT_REF}")
        agents.check(row, agent)
    except DataError as e:
        return str(e)
    return ""


def _summary(rows: _StoredRows, done: set[Key], failed: Mapping[Key, Tries], open_: Mapping[Key, Tries], cap: int) -> str:
    terminal = sum(t.terminal for t in open_.values())
    exhausted = sum(not t.terminal and t.count >= cap for t in open_.values())
    parts = {
        "inputs": len(rows.keys),
        "done": len(done & rows.keys),
        "prior failures": sum(t.count for t in failed.values()),
        "terminal": terminal,
        "exhausted": exhausted,
        "remaining": len(rows.keys) - len(done & rows.keys) - sum(_ended(open_, rows.keys, cap)),
    }
    return "resuming: " + ", ".join(f"{n:,} {name}" for name, n in parts.items())


def _ended(open_: Mapping[Key, Tries], keys: set[Key], cap: int) -> Iterator[bool]:
    return (key in keys and (t.terminal or t.count >= cap) for key, t in open_.items())
