"""Where files that a run names are looked for (platform.md E2): search folders, the working directory, the install.

Invariant: the first match wins, and a match that it hides is named, so nobody edits a file that is not read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import environments

EXTRA_ROOTS = "NEMO_GYM_EXTRA_ROOTS"


@dataclass(frozen=True, slots=True)
class Found:
    """A file or folder, and those of the same name in later roots."""

    path: Path
    shadowed: tuple[Path, ...] = ()

    def warning(self) -> str | None:
        """What to say about hidden ones."""
        return f"{self.path} is used; it hides {', '.join(map(str, self.shadowed))}" if self.shadowed else None


@dataclass(frozen=True, slots=True)
class SearchRoots:
    """Roots in order; `of` makes the usual ones."""

    roots: tuple[Path, ...]

    @classmethod
    def of(cls, folders: Sequence[Path] = (), environ: Mapping[str, str] = os.environ) -> SearchRoots:
        """`folders` as given on the command line, those of `NEMO_GYM_EXTRA_ROOTS`, the working directory, the install."""
        extra = [Path(p) for p in environ.get(EXTRA_ROOTS, "").split(os.pathsep) if p.strip()]
        return cls((*(p.expanduser() for p in (*folders, *extra)), Path(), *_install()))

    def find(self, name: Path) -> Found:
        """The file or folder `name`; raises `FileNotFoundError` that lists where it was looked for."""
        if name.is_absolute() or name.parts[:1] == ("~",):
            whole = name.expanduser()
            if whole.exists():
                return Found(whole)
            raise FileNotFoundError(2, "No such file or directory", str(name))
        matches = list(dict.fromkeys(_distinct(root / name for root in self.roots)))
        if not matches:
            places = ", ".join(str(root.absolute()) for root in self.roots)
            raise FileNotFoundError(2, f"No such file or directory, looked for in {places}", str(name))
        return Found(matches[0], tuple(matches[1:]))


def _distinct(paths: Iterator[Path]) -> Iterator[Path]:
    seen: set[Path] = set()
    for path in paths:
        if path.exists() and path.resolve() not in seen:
            seen.add(path.resolve())
            yield path


def _install() -> list[Path]:
    """Folders that hold the package `environments`, so that `environments/mcqa/…` is found wherever it is installed."""
    return [Path(place).parent for place in environments.__path__]
