"""`STEM_run.json`: what a results file was made with, and where in the log its run began (platform.md A6).

Invariant: written whole at the start and again at the end; no secret is in it, neither by its name nor inside a URL.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from rollstream.settings.mask import mask_urls, masked
from schemas import jsontext
from services.runtime.record import TopicPartition
from services.sink.checkpoint import offsets_from_json, offsets_to_json
from services.sink.disk import replace_file
from services.sink.stopped import stopped

_FORMAT = 1
_HASH_DIGITS = 16
"""64 bits: told apart are the few configurations that one output ever had."""


class RunRecordError(ValueError):
    """A run record that cannot be read."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run. Times are ISO 8601 in UTC; `ended` is None while it goes on (or after a kill).

    `model` says which policy (`url`, `name`), `models` which others by name, `warnings` what a reader of the scores should
    know (a judge that was the policy), `rollouts` how many were asked for, `outcomes` how many ended how.
    `starting_offsets` are the ends of the topics when the run began, in the Kafka cluster `cluster_id`: a resume
    reads from there. `changes` of the configuration were allowed when it was resumed.
    """

    run_id: str
    config_hash: str
    code_version: str
    started: str
    model: Mapping[str, Any] = field(default_factory=dict)
    models: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    rollouts: int | None = None
    starting_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    cluster_id: str = ""
    outcomes: Mapping[str, int] = field(default_factory=dict)
    ended: str | None = None
    changes: Sequence[str] = ()

    def finished(self, outcomes: Mapping[str, int], ended: str | None = None) -> RunRecord:
        """The record of the same run at its end."""
        return dataclasses.replace(self, outcomes=dict(outcomes), ended=ended or utc_now())

    def write(self, path: Path) -> None:
        """Replace the file at `path`, secrets masked; raises `SinkStoppedError` when it cannot be written."""
        value = {"format": _FORMAT, **{f.name: getattr(self, f.name) for f in dataclasses.fields(self)}}
        value |= {name: without_secrets(getattr(self, name)) for name in ("model", "models", "arguments")}
        value |= {"starting_offsets": offsets_to_json(self.starting_offsets), "outcomes": dict(self.outcomes)}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, indented(value))
        except OSError as e:
            raise stopped(path, e) from e


def read_run_record(path: Path) -> RunRecord | None:
    """The record at `path`, if there is one; fields of later versions are left out. Raises `RunRecordError`."""
    try:
        value = jsontext.loads(path.read_bytes())
        if value["format"] != _FORMAT:
            raise ValueError(f"format {value['format']!r}; this version reads {_FORMAT}")
        known = {f.name: value[f.name] for f in dataclasses.fields(RunRecord) if f.name in value}
        known["starting_offsets"] = offsets_from_json(known.get("starting_offsets", {}))
        return RunRecord(**known)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise RunRecordError(f"{path} is not a run record this version can read: {e}") from e


def config_hash(config: Mapping[str, Any]) -> str:
    """A short hash of a configuration, secrets left out: a new key is not a new configuration."""
    plain = json.dumps(without_secrets(config), sort_keys=True, default=str)
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]


def code_version() -> str:
    """The version of rollstream that is running."""
    return metadata.version("rollstream")


def utc_now() -> str:
    """Now, to the second, as the record writes it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def without_secrets(value: Any, key: str = "") -> Any:
    """`value` with every secret in it masked: by the name of its key, by its type, or inside a URL."""
    if isinstance(value, Mapping):
        return {str(k): without_secrets(v, str(k)) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(v, key) for v in value]
    if isinstance(value, Path):
        return mask_urls(str(value))
    return masked(key, value)


def indented(value: Any) -> bytes:
    """JSON for people: indented, non-ASCII as it is, a lone surrogate as its escape."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace") + b"\n"
