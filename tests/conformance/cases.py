"""The cases: where they lie and how they are read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

DEFAULT = Path(__file__).parents[3] / "shared" / "conformance"
NOWHERE = f"no conformance cases: set CONFORMANCE_DIR to their directory, or put them into {DEFAULT.parent.name}/{DEFAULT.name} beside the project"


@dataclass(frozen=True)
class Case:
    """One line of one file. `subject` is what it is about: an environment, or `agents/NAME` for an agent."""

    id: str
    subject: str
    data: Mapping[str, Any]

    @property
    def expected(self) -> Mapping[str, Any]:
        """What the result must be; nothing, for a case that is about its tool calls alone."""
        found: Mapping[str, Any] = self.data.get("expected") or {}
        return found


def directory() -> Path | None:
    """The directory of the cases, or None; a directory that was asked for must exist."""
    asked = os.environ.get("CONFORMANCE_DIR")
    if asked and not Path(asked).is_dir():
        raise pytest.UsageError(f"CONFORMANCE_DIR={asked}: there is no such directory")
    folder = Path(asked) if asked else DEFAULT
    return folder if folder.is_dir() else None


def load(folder: Path) -> Iterator[Case]:
    """Every case of every file, in the order of files and lines."""
    for path in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            try:
                data = json.loads(line)
                subject = f"agents/{data['agent']}" if path.stem == "agents" else data.get("environment", path.stem)
                yield Case(data["id"], subject, data)
            except (ValueError, KeyError) as e:
                raise pytest.UsageError(f"{path.name}:{number}: not a case: {e!r}") from e
