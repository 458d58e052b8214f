"""Finding environments: the folders beside this file, and packages that register under an entry point.

Owns what is found and what is broken. Invariant: finding imports no environment, and one that cannot be read never hides
the others: it is kept with its error, for `rollstream environments` to show and for whoever asks for it by name.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

import yaml
from pydantic import ValidationError

from environments.extras import OURS
from environments.manifest import Manifest, load_manifest
from schemas.rows import describe

ENTRY_POINTS = "rollstream.environments"


@dataclass(frozen=True)
class Entry:
    """One environment: its manifest, its folder, and the package whose module `environment` holds its class.

    `distribution` is what was installed to have it; its extras are the environment's.
    """

    manifest: Manifest
    folder: Path
    package: str
    distribution: str = OURS


@dataclass(frozen=True)
class Broken:
    """An environment that cannot be used: the name it was registered under, its package, and why."""

    name: str
    package: str
    error: str


def discover(root: Path | None = None) -> tuple[list[Entry], list[Broken]]:
    """Every environment, those of this project first, and what was broken.

    Names must be unique: an environment that takes a name (its own, a variant's or an agent's) of an earlier one is broken.
    """
    found: list[Entry] = []
    broken: list[Broken] = []
    taken: dict[str, str] = {}
    for one in (*_built_in(root or Path(__file__).parent), *_registered()):
        result = _if_free(one, taken) if isinstance(one, Entry) else one
        if isinstance(result, Entry):
            found.append(result)
        else:
            broken.append(result)
    return found, broken


def names_of(manifest: Manifest) -> set[str]:
    """Every name that an environment answers to."""
    return {manifest.name, *manifest.variants, *(v.agent.name for v in manifest.variants.values())}


def _if_free(entry: Entry, taken: dict[str, str]) -> Entry | Broken:
    names = names_of(entry.manifest)
    clash = next((n for n in sorted(names) if n in taken), None)
    if clash is not None:
        return Broken(entry.manifest.name, entry.package, f"the name {clash!r} is already taken by {taken[clash]}")
    taken.update(dict.fromkeys(names, entry.package))
    return entry


def _built_in(root: Path) -> Iterator[Entry | Broken]:
    for config in sorted(root.glob("*/config.yaml")):
        yield _read(config.parent.name, f"environments.{config.parent.name}", partial(Path, config.parent))


def _registered() -> Iterable[Entry | Broken]:
    points = sorted(metadata.entry_points(group=ENTRY_POINTS), key=lambda p: (p.name, p.value))
    return [_read(p.name, p.value, partial(_folder_of, p.value), p.dist.name if p.dist else p.name) for p in points]


def _folder_of(package: str) -> Path:
    """Where a package lies, found without importing it (its parents are imported)."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"there is no package {package!r}")
    return Path(next(iter(spec.submodule_search_locations)))


def _read(name: str, package: str, folder_of: Callable[[], Path], distribution: str = OURS) -> Entry | Broken:
    try:
        folder = folder_of()
        return Entry(load_manifest(folder), folder, package, distribution)
    except ValidationError as e:
        return Broken(name, package, describe(e, "config.yaml"))
    except yaml.YAMLError as e:
        return Broken(name, package, f"config.yaml is not YAML: {' '.join(str(e).split())}")
    except Exception as e:  # noqa: BLE001 - other people's packages may fail in any way
        return Broken(name, package, f"{type(e).__name__}: {e}")
