"""From a call to the meaning of its configuration.

Owns which files a call reads. Invariant: nothing is started, written or asked over a network.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from environments.registry import Registry
from environments.words import nearest
from rollstream.nemo_gym import keys
from rollstream.nemo_gym.calls import Call, paths_of
from rollstream.nemo_gym.errors import ConfigurationError
from rollstream.nemo_gym.merging import CONFIG_PATHS, ENV_FILE, Merged, merge, read
from rollstream.nemo_gym.overrides import Mode, Override
from rollstream.nemo_gym.roots import Roots
from rollstream.nemo_gym.shipped import Shipped
from rollstream.nemo_gym.translation import Translation, translate


@dataclass(frozen=True, slots=True)
class Resolved:
    """The tree of a call, what it means, and the roots in which it was found."""

    merged: Merged
    translation: Translation
    roots: Roots


def resolve(call: Call, environ: Mapping[str, str] = os.environ) -> Resolved:
    """The configuration of a call; raises `ConfigurationError` for one that cannot be merged.

    What it means may have errors all the same: `Resolved.translation`.
    """
    registry = Registry.load({})
    roots = Roots.of(call.search, environ)
    shipped = Shipped(registry.entries)
    named = [_selected(kinds, roots, shipped) for kinds in paths_of(call.selectors)]
    overrides = [*_listed([*call.configs, *named], roots, call.overrides), *call.overrides]
    merged = merge(overrides, roots, shipped, shipped.known, keys.ALL.__contains__)
    return Resolved(merged, translate(merged, registry, roots.find), roots)


def _selected(paths: list[str], roots: Roots, shipped: Shipped) -> str:
    for path in paths:
        if roots.find(path) is not None or shipped(path) is not None:
            return path
    raise ConfigurationError(f"{paths[0]}: not in {roots}, and not shipped{nearest(paths[0], shipped.known())}")


def _listed(paths: list[str], roots: Roots, overrides: list[Override]) -> list[Override]:
    """`config_paths` with those that flags name after those that are listed already (by words, else by env.yaml)."""
    if not paths:
        return []
    listed = next((o.value for o in reversed(overrides) if o.path == (CONFIG_PATHS,)), None)
    if listed is None and (env := roots.find_own(ENV_FILE)) is not None:
        listed = read(env).get(CONFIG_PATHS)
    before = [p for p in listed if p not in paths] if isinstance(listed, list) else []
    overrides[:] = [o for o in overrides if o.path != (CONFIG_PATHS,)]
    return [Override((CONFIG_PATHS,), [*before, *paths], Mode.FORCE)]
