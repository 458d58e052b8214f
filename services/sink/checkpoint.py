"""How far a pair of files is: input offsets and byte lengths, in `STEM.checkpoint.json` beside the results.

Invariant: the first `results_bytes` and `failures_bytes` of the two files hold the lines of exactly the records below
`offsets`; both lengths end a line, and the files were synced to that length before the checkpoint was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from schemas import jsontext
from services.runtime.record import TopicPartition
from services.sink.disk import Disk, replace_file
from services.sink.stopped import SinkStoppedError

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint; `offsets` maps a partition to the offset of its first record that is not in the files."""

    run_id: str
    results_bytes: int = 0
    failures_bytes: int = 0
    offsets: dict[TopicPartition, int] = field(default_factory=dict)

    def write(self, path: Path, disk: Disk) -> None:
        """Replace the checkpoint at `path` atomically; raises `OSError`."""
        offsets = offsets_to_json(self.offsets)
        lengths = {"results_bytes": self.results_bytes, "failures_bytes": self.failures_bytes}
        replace_file(path, jsontext.dumps({"format": _FORMAT, "run_id": self.run_id, **lengths, "offsets": offsets}), disk)


def offsets_to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Offsets as our files write them: by topic, then by partition."""
    found: dict[str, dict[str, int]] = {}
    for tp, offset in sorted(offsets.items()):
        found.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return found


def offsets_from_json(value: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """What `offsets_to_json` wrote. Raises `ValueError`, `TypeError` or `AttributeError` for anything else."""
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in value.items()
        for partition, offset in partitions.items()
    }


def read_checkpoint(path: Path) -> Checkpoint | None:
    """The checkpoint at `path`, if there is one. Raises `SinkStoppedError` when it is not one of ours."""
    try:
        value: Any = jsontext.loads(path.read_bytes())
        if value["format"] != _FORMAT:
            raise ValueError(f"format {value['format']!r}; this version reads {_FORMAT}")
        offsets = offsets_from_json(value["offsets"])
        return Checkpoint(str(value["run_id"]), int(value["results_bytes"]), int(value["failures_bytes"]), offsets)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise SinkStoppedError(
            f"{path} is not a checkpoint this version can read ({e}); remove it and resume, or start the run's files anew"
        ) from e
