"""Where files of a configuration are looked for (platform.md E2).

Owns which roots a call has (`runfiles.search` has their order). Invariant: the first match wins, and what it hides
is said, once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rollstream.nemo_gym.errors import ConfigurationError
from rollstream.runfiles.search import EXTRA_ROOTS, SearchRoots


@dataclass(slots=True)
class Roots:
    """The roots of a call; `own` are those that are not the install. `warnings` names each file that another one hides."""

    search: SearchRoots
    own: tuple[Path, ...]
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, named: Iterable[str | Path] = (), environ: Mapping[str, str] = os.environ) -> Roots:
        """The roots; raises `ConfigurationError` for a folder that is named and not there."""
        folders = [Path(f).expanduser() for f in named]
        extra = [Path(f).expanduser() for f in environ.get(EXTRA_ROOTS, "").split(os.pathsep) if f.strip()]
        for folder, why in [*((f, "--search-dir") for f in folders), *((f, EXTRA_ROOTS) for f in extra)]:
            if not folder.is_dir():
                raise ConfigurationError(f"{folder}: there is no such folder (named by {why})")
        return cls(SearchRoots.of(folders, environ), (*folders, *extra, Path()))

    def find(self, path: str) -> Path | None:
        """The file that `path` means, if there is one."""
        try:
            found = self.search.find(Path(path))
        except (FileNotFoundError, OSError, ValueError):  # too long for a path, or with a null byte: no file's name
            return None
        warning = found.warning()
        if warning and warning not in self.warnings:
            self.warnings.append(warning)
        return found.path if found.path.is_file() else None

    def find_own(self, path: str) -> Path | None:
        """As `find`, but not in the install: what is secret and a person's own never comes from there."""
        return next((root / path for root in self.own if (root / path).is_file()), None)

    def __str__(self) -> str:
        return ", ".join(str(root.absolute()) for root in self.own)
