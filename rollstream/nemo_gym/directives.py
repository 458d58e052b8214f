"""`_inherit_from`, `_copy`, `_delete_key`, `${inherit_from:…}` and `${copy:…}` (platform.md E4).

Owns what they do to a tree of plain values. `_inherit_from: PATH` puts the block's own keys over what stands at PATH and takes
that away from there; `_copy` leaves it. The interpolations do the same for a block that has no keys of its own. `_delete_key`
names keys, by comma, that the outcome does not have. Invariant: sources are read as they were before any directive was
applied, but for their own directives, so the order of blocks does not matter.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from typing import Any

from environments.words import nearest
from rollstream.nemo_gym.errors import ConfigurationError

INHERIT, COPY, DELETE = "_inherit_from", "_copy", "_delete_key"
_WRITTEN = re.compile(r"\$\{(inherit_from|copy):([^${}]+)\}")

Path = tuple[str, ...]


def applied(values: Mapping[str, Any], where: Callable[[Path], str]) -> dict[str, Any]:
    """`values` without directives; raises `ConfigurationError`, with `where` a key was set, for a path that leads nowhere."""
    work = _Work(values, where)
    out: dict[str, Any] = work.resolved(dict(values), ())
    for path in sorted(work.taken, key=len, reverse=True):
        _remove(out, path)
    return out


class _Work:
    def __init__(self, values: Mapping[str, Any], where: Callable[[Path], str]) -> None:
        self._values = values
        self._where = where
        self._under_way: list[Path] = []
        self.taken: set[Path] = set()

    def resolved(self, value: Any, at: Path) -> Any:
        """The value that stands `at` a path, its directives carried out."""
        if isinstance(value, list):
            return [self.resolved(v, (*at, str(i))) for i, v in enumerate(value)]
        if isinstance(value, str) and (found := _WRITTEN.fullmatch(value)):
            return self._source(found[2], at, take=found[1] == "inherit_from")
        return self._block(value, at) if isinstance(value, dict) else value

    def _block(self, block: dict[str, Any], at: Path) -> Any:
        unwanted = self._names(block.get(DELETE), at)
        own = {k: self.resolved(v, (*at, str(k))) for k, v in block.items() if k not in _DIRECTIVES and k not in unwanted}
        absent = set(unwanted) - block.keys()
        for word in (INHERIT, COPY):
            if word in block:
                base = self._source(block[word], at, take=word == INHERIT)
                if not isinstance(base, dict):
                    raise self._error(at, f"{word}: {block[word]} is a plain value, not a block")
                absent -= base.keys()
                own = _merged({k: v for k, v in base.items() if k not in unwanted}, own)
        if absent:
            name = min(absent)
            raise self._error(at, f"{DELETE}: there is no key {name!r} to delete{nearest(name, map(str, own))}")
        return own

    def _source(self, dotted: Any, at: Path, *, take: bool) -> Any:
        if not isinstance(dotted, str) or not dotted:
            raise self._error(at, f"name the block by its dotted path, not {dotted!r}")
        path = tuple(dotted.split("."))
        if path in self._under_way:
            raise self._error(at, f"{dotted} inherits from itself")
        value = self._at(path, at)
        if take:
            self.taken.add(path)
        self._under_way.append(path)
        try:
            return self.resolved(copy.deepcopy(value), path)
        finally:
            self._under_way.pop()

    def _at(self, path: Path, at: Path) -> Any:
        value: Any = self._values
        for i, name in enumerate(path):
            if not isinstance(value, dict) or name not in value:
                hint = nearest(name, map(str, value)) if isinstance(value, dict) else ""
                raise self._error(at, f"{'.'.join(path)}: there is no {'.'.join(path[: i + 1])}{hint}")
            value = value[name]
        return value

    def _names(self, value: Any, at: Path) -> list[str]:
        if value is None:
            return []
        if not isinstance(value, str):
            raise self._error(at, f"{DELETE}: name keys, by comma, not {value!r}")
        return [name.strip() for name in value.split(",") if name.strip()]

    def _error(self, at: Path, text: str) -> ConfigurationError:
        return ConfigurationError(f"{'.'.join(at)} ({self._where(at)}): {text}")


_DIRECTIVES = frozenset({INHERIT, COPY, DELETE})


def _merged(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = _merged(out[key], value) if both else value
    return out


def _remove(values: dict[str, Any], path: Path) -> None:
    place: Any = values
    for name in path[:-1]:
        place = place.get(name) if isinstance(place, dict) else None
    if isinstance(place, dict):
        place.pop(path[-1], None)
