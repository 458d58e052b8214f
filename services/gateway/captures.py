"""Files of captured calls, one for each rollout (platform.md G1, D8).

`ROLLOUT_ID.capture.jsonl` holds a record for each call, `ROLLOUT_ID.tokens.jsonl` one for each call whose tokens are known.
Invariant: a record is on disk before its call is answered; a call that was cut off by a crash leaves a marker
(`ROLLOUT_ID.CALL.incomplete`), which reading turns into an `incomplete` record and a gap. Blocking: call off the event loop.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from schemas import jsontext
from schemas.identity import is_id
from services.gateway.record import CallRecord, attachment

_CALLS, _TOKENS, _MARKER = ".capture.jsonl", ".tokens.jsonl", ".incomplete"


class Captures:
    """The captures in one folder, of one process. Rollout ids are checked (A8): none can leave the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)

    def begin(self, rollout_id: str, record: CallRecord) -> None:
        """Leave the marker of a call that begins."""
        marker = self._marker(rollout_id, record.model_call_id)
        marker.write_bytes(jsontext.dumps({**record.as_json(), "error_category": "incomplete"}))

    def finish(self, rollout_id: str, record: CallRecord, tokens: dict[str, Any] | None = None) -> None:
        """Write the record of a call that ended, durably, then its tokens, and take the marker away."""
        if tokens is not None:
            self._append(self._path(rollout_id, _TOKENS), tokens)
        self._append(self._path(rollout_id, _CALLS), record.as_json())
        self._marker(rollout_id, record.model_call_id).unlink(missing_ok=True)

    def attachment(self, rollout_id: str) -> dict[str, Any]:
        """`ng_model_call_capture` of a rollout; cut-off calls come last."""
        calls = list(_lines(self._path(rollout_id, _CALLS)))
        known = {c.get("model_call_id") for c in calls}
        cut = [c for c in self._markers(rollout_id) if c.get("model_call_id") not in known]
        gaps = [{"code": "model_call_incomplete", "detail": c.get("model_call_id")} for c in cut]
        return attachment(rollout_id, [*calls, *cut], gaps)

    def tokens(self, rollout_id: str) -> tuple[list[dict[str, Any]], bool]:
        """The token records of a rollout, each call once, and whether a call is missing (cut off, or under way)."""
        found: dict[Any, dict[str, Any]] = {}
        for record in _lines(self._path(rollout_id, _TOKENS)):
            found.setdefault(record.get("model_call_id"), record)
        cut = [c for c in self._markers(rollout_id) if c.get("model_call_id") not in found]
        return list(found.values()), bool(cut)

    def clear(self, rollout_id: str) -> None:
        """Forget a rollout: before it is dispatched again (B6), or once its sample was delivered."""
        for path in (self._path(rollout_id, _CALLS), self._path(rollout_id, _TOKENS), *self._marker_paths(rollout_id)):
            path.unlink(missing_ok=True)

    def _append(self, path: Path, value: dict[str, Any]) -> None:
        line = jsontext.dumps(value) + b"\n"
        with self._lock:
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                end = os.fstat(fd).st_size
                if end and os.pread(fd, 1, end - 1) != b"\n":  # a crash tore the last line
                    line = b"\n" + line
                while line:
                    line = line[os.write(fd, line) :]
                os.fsync(fd)
            finally:
                os.close(fd)

    def _markers(self, rollout_id: str) -> list[dict[str, Any]]:
        found = (next(_lines(path), None) for path in self._marker_paths(rollout_id))
        return sorted((m for m in found if m is not None), key=lambda m: float(m.get("started_at") or 0))

    def _marker_paths(self, rollout_id: str) -> list[Path]:
        # Ids may hold dots: a call's own id does not, so the rest is compared whole.
        head = f"{_checked(rollout_id)}."
        return [p for p in self._folder.glob(f"*{_MARKER}") if p.name.removesuffix(_MARKER).rpartition(".")[0] + "." == head]

    def _marker(self, rollout_id: str, call_id: str) -> Path:
        return self._path(rollout_id, f".{call_id}{_MARKER}")

    def _path(self, rollout_id: str, suffix: str) -> Path:
        return self._folder / f"{_checked(rollout_id)}{suffix}"


def _checked(rollout_id: str) -> str:
    if not is_id(rollout_id):
        raise ValueError(f"not a rollout id: {rollout_id[:80]!r}")
    return rollout_id


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file; a torn line is none."""
    if not path.is_file():
        return
    for line in path.read_bytes().split(b"\n"):
        try:
            value = jsontext.loads_lenient(line) if line else None
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value
