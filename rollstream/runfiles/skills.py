"""Skills that a run's agents use, as its rows name them (platform.md B8): names, versions, and a hash of all their files.

Invariant: the hash depends on names and content of the files alone, so equal folders have equal hashes on every machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rollstream.runfiles.problems import PlanError

SKILLS_REF = "skills_ref"
_FILE = "SKILL.md"
_HASH_DIGITS = 12
_FENCE = "---"
_HEAD_BYTES = 64 << 10
"""Front matter longer than this is none."""


def skills_ref(folder: Path, name: str) -> dict[str, Any]:
    """What rows carry of the skills in `folder`, which the run calls `name`.

    Raises `PlanError` for a folder that holds none or a skill without a name, `OSError` for what cannot be read.
    """
    if not folder.is_dir():
        raise PlanError(f"skills: {folder} is no folder; name one that holds a folder with a {_FILE} for each skill")
    places = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not places:
        raise PlanError(f"skills: {folder} holds no skills; each is a folder with a {_FILE}")
    return {"path": name, "hash": _hash(folder), "skills": [_skill(place) for place in places]}


def _skill(place: Path) -> dict[str, Any]:
    path = place / _FILE
    if not path.is_file():
        raise PlanError(f"skills: {place} has no {_FILE}")
    front = _front_matter(path)
    name = front.get("name")
    if not isinstance(name, str) or not name.strip():
        raise PlanError(f"{path}: its front matter has no name")
    metadata = front.get("metadata")
    version = metadata.get("version") if isinstance(metadata, dict) else None
    return {"name": name, "description": _text(front.get("description")), "version": _text(version)}


def _front_matter(path: Path) -> dict[Any, Any]:
    import yaml

    with path.open("rb") as file:
        lines = file.read(_HEAD_BYTES).decode("utf-8-sig", "replace").splitlines()
    if not lines or lines[0].rstrip() != _FENCE or _FENCE not in (line.rstrip() for line in lines[1:]):
        raise PlanError(f"{path} does not begin with front matter: YAML between two lines of {_FENCE}")
    end = next(i for i, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE)
    try:
        # Every scalar as it is written: version 1.10 is no number.
        value = yaml.load("\n".join(lines[1:end]), yaml.BaseLoader)  # noqa: S506 - builds text, lists and mappings only
    except (yaml.YAMLError, RecursionError) as e:
        raise PlanError(f"{path}: its front matter is not YAML: {' '.join(str(e).split())}") from e
    if not isinstance(value, dict):
        raise PlanError(f"{path}: its front matter is not a mapping")
    return value


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for name, path in sorted(_files(folder)):
        digest.update(name.encode("utf-8", "surrogateescape") + b"\0")
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
        digest.update(b"\0")
    return digest.hexdigest()[:_HASH_DIGITS]


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path
