"""Writing the files of a new environment. Invariant: all of them or none, and nothing that is there is lost unasked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write(root: Path, files: Mapping[Path, bytes], *, force: bool = False) -> list[Path]:
    """Write `files` (relative to `root`) and return their paths; folders are made.

    Raises `FileExistsError` that names what is there, before anything is written, unless `force` replaces it.
    """
    targets = {root / relative: content for relative, content in files.items()}
    if not force:
        there = next((path for path in targets if path.exists()), None)
        if there is not None:
            raise FileExistsError(f"{there} is there already; nothing was written (--force replaces it)")
    for path, content in targets.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return list(targets)


def checkout(start: Path) -> Path | None:
    """The checkout of this project that `start` lies in; None when it lies in none."""
    for folder in (start, *start.parents):
        if (folder / "environments" / "environment.py").is_file() and (folder / "rollstream" / "scaffold").is_dir():
            return folder
    return None
