"""Files, `env.yaml` and words of the command line as one tree (platform.md E1).

Owns the order: files as listed, each over those that it includes; then `env.yaml`; then the command line. Invariant:
every value of the outcome can be traced to the file that set it, no interpolation is left in it, and every problem of a kind
(values that are missing, interpolations that lead nowhere) is told at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from environments.words import near_word, nearest
from rollstream.nemo_gym.directives import applied
from rollstream.nemo_gym.errors import ConfigurationError
from rollstream.nemo_gym.overrides import Mode, Override, tree
from rollstream.nemo_gym.roots import Roots

CONFIG_PATHS = "config_paths"
ENV_FILE = "env.yaml"
COMMAND_LINE = "command line"
MISSING = "???"

MAX_FILE_BYTES = 4 << 20
"""Of one configuration file; the longest of the reference's have some hundred lines."""

MAX_FILES = 500
"""Included ones among them: a configuration that lists more includes itself under ever new names."""

_REFERRED = re.compile(r"\$\{\s*([A-Za-z_][\w.\-]*)\s*\}")

_OURS = {"name", "variants", "domain"}
"""Keys that an environment's manifest has and no file of the reference."""

Tree = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Layer:
    """The values of one file or of the command line, and what it is called in messages."""

    source: str
    values: Tree


@dataclass(frozen=True, slots=True)
class Merged:
    """The outcome: plain values; the layers, the last of which wins; keys that interpolations refer to; warnings."""

    values: Tree
    layers: tuple[Layer, ...]
    referred: frozenset[str]
    warnings: tuple[str, ...]

    def where(self, path: Sequence[str]) -> str:
        """What set the value at a path: the last file or command line that has it, or the nearest block above it."""
        return _where(self.layers, path)


@dataclass(slots=True)
class _Files:
    """Files on their way in: found through the roots, or among those that `shipped` makes."""

    roots: Roots
    shipped: Callable[[str], Tree | None]
    known: Callable[[], Sequence[str]]
    warnings: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    def listed(self, paths: Sequence[str], by: str) -> Iterator[Layer]:
        """The layers of `paths`, each after those that it includes."""
        for path in paths:
            if path in self.seen:
                self.warnings.append(f"{path} is named more than once ({by}): only the first counts")
                continue
            self.seen.add(path)
            if len(self.seen) > MAX_FILES:
                raise ConfigurationError(f"{path} ({by}): more than {MAX_FILES} files are named")
            layer = self._layer(path, by)
            yield from self.listed(_paths(layer), layer.source)
            yield layer

    def _layer(self, path: str, by: str) -> Layer:
        found = self.roots.find(path)
        if found is not None:
            values = read(found)
            if not values.keys() >= _OURS:
                return Layer(str(found), values)
            path = f"environments/{values['name']}/config.yaml"  # a manifest of ours, which says the same in other words
        made = self.shipped(path)
        if made is not None:
            return Layer(path, made)
        raise ConfigurationError(f"{path} ({by}): not in {self.roots}, and not shipped{nearest(path, self.known())}")


def merge(
    overrides: Sequence[Override],
    roots: Roots,
    shipped: Callable[[str], Tree | None] = lambda _: None,
    known: Callable[[], Sequence[str]] = lambda: (),
    free: Callable[[str], bool] = lambda _: False,
) -> Merged:
    """The one tree of a call. `free` says which top-level keys `key=value` may set without a `+`, though no file has them.

    Raises `ConfigurationError`.
    """
    words = Layer(COMMAND_LINE, tree(list(overrides)))
    env_path = roots.find_own(ENV_FILE)
    env = [Layer(str(env_path), read(env_path))] if env_path else []
    files = _Files(roots, shipped, known)
    naming = next((layer for layer in (words, *env) if CONFIG_PATHS in layer.values), None)
    below = [*files.listed(_paths(naming), naming.source), *env] if naming else env
    _check_changes(overrides, below, free)
    layers = (*below, words)
    values = _deleted(_united(layers), overrides)
    referred = frozenset(name.split(".")[0] for layer in layers for name in _REFERRED.findall(str(layer.values)))
    out = _resolved(applied(values, lambda path: _where(layers, path)), layers)
    return Merged(out, layers, referred, (*roots.warnings, *files.warnings))


def read(path: Path) -> Tree:
    """The values of a YAML file, interpolations as they stand; raises `ConfigurationError` with the line of what is wrong."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigurationError(f"{path}: larger than {MAX_FILE_BYTES >> 20} MiB, which is no configuration")
        loaded: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise ConfigurationError(f"{path}{place}: {e.problem or e.context}") from e
    except (OSError, UnicodeDecodeError, yaml.YAMLError, OmegaConfBaseException, RecursionError, ValueError) as e:
        if isinstance(e, ConfigurationError):
            raise
        raise ConfigurationError(f"{path}: {_line(e)}") from e
    if not isinstance(loaded, dict) or _is_text(loaded, path):
        kind = type(loaded).__name__ if isinstance(loaded, list) else "str"
        raise ConfigurationError(f"{path}: expected keys and values, found {kind}")
    return loaded


def _is_text(loaded: Tree, path: Path) -> bool:
    """Whether the file is a plain text, which OmegaConf takes for a key without a value."""
    return list(loaded.values()) == [None] and ":" not in path.read_text("utf-8", "replace")


def _paths(layer: Layer) -> list[str]:
    value = layer.values.get(CONFIG_PATHS) or []
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        hint = f"; write '+{CONFIG_PATHS}=[a.yaml,b.yaml]'" if layer.source == COMMAND_LINE else ""
        raise ConfigurationError(f"{CONFIG_PATHS} ({layer.source}): expected a list of paths, found {value!r}{hint}")
    return value


def _check_changes(overrides: Sequence[Override], below: Sequence[Layer], free: Callable[[str], bool]) -> None:
    """`key=value` and `~key` are for keys that are there: one that is not is a misspelling more often than not."""
    problems = []
    for o in overrides:
        there = any(_holds(layer.values, o.path) for layer in below)
        if o.mode in (Mode.CHANGE, Mode.DELETE) and not there and not (o.mode is Mode.CHANGE and free(o.path[0])):
            near = near_word(o.key, {key for layer in below for key in _keys(layer.values)})
            hint = f"; did you mean {near}?" if near else ""
            add = f"; +{o.key}=… adds it" if o.mode is Mode.CHANGE else ""
            problems.append(f"{o.key} ({COMMAND_LINE}): no file has this key{hint}{add}")
    if problems:
        raise ConfigurationError.of(problems)


def _keys(values: Any, prefix: str = "") -> Iterator[str]:
    for key, value in values.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _keys(value, f"{prefix}{key}.")


def _united(layers: Sequence[Layer]) -> Tree:
    try:
        merged = OmegaConf.merge(*(OmegaConf.create(layer.values) for layer in layers))
    except (OmegaConfBaseException, ValueError, TypeError) as e:
        raise ConfigurationError(f"the files do not fit together: {_line(e)}") from e
    found = OmegaConf.to_container(merged, resolve=False)
    assert isinstance(found, dict)  # every layer is one
    return {str(k): v for k, v in found.items()}


def _deleted(values: Tree, overrides: Sequence[Override]) -> Tree:
    for o in overrides:
        if o.mode is Mode.DELETE:
            place: Any = values
            for name in o.path[:-1]:
                place = place.get(name) if isinstance(place, dict) else None
            if isinstance(place, dict):
                place.pop(o.path[-1], None)
    return values


def _resolved(values: Tree, layers: Sequence[Layer]) -> Tree:
    """`values` with interpolations in place; raises one error for all that is missing, or for all that leads nowhere."""
    missing = [path for path, value in leaves(values) if value == MISSING]
    if missing:
        lines = [f"{'.'.join(path)} ({_where(layers, path)}): has no value yet (???)" for path in missing]
        raise ConfigurationError.of([*lines, f"give each in {ENV_FILE} or as a word: ++{'.'.join(missing[0])}=…"])
    config = OmegaConf.create(values)
    problems = []
    for path, value in leaves(values):
        if isinstance(value, str) and "${" in value:
            try:
                _selected(config, path)
            except (OmegaConfBaseException, ValueError, TypeError, RecursionError) as e:
                problems.append(f"{'.'.join(path)} ({_where(layers, path)}): {_broken(value, e, values)}")
    if problems:
        raise ConfigurationError.of(problems)
    out = OmegaConf.to_container(config, resolve=True)
    assert isinstance(out, dict)
    return {str(k): v for k, v in out.items()}


def _selected(config: Any, path: Sequence[str]) -> Any:
    node = config
    for name in path:
        node = node[int(name)] if OmegaConf.is_list(node) else node[name]
    return node


def _broken(value: str, error: BaseException, values: Tree) -> str:
    names = [n for n in _REFERRED.findall(value) if not _holds(values, n.split("."))]
    if not names:
        return f"{value} cannot be resolved: {_line(error)}"
    near = near_word(names[0], _keys(values))
    hint = f"; did you mean ${{{near}}}?" if near else ""
    return f"{value} names {names[0]}, which nothing sets{hint}; set it in {ENV_FILE} or as a word: +{names[0]}=…"


def leaves(values: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every plain value of a tree with its path; positions of lists are parts of paths."""
    if isinstance(values, dict):
        for key, value in values.items():
            yield from leaves(value, (*at, str(key)))
    elif isinstance(values, list):
        for i, value in enumerate(values):
            yield from leaves(value, (*at, str(i)))
    else:
        yield at, values


def _where(layers: Sequence[Layer], path: Sequence[str]) -> str:
    for length in range(len(path), 0, -1):
        for layer in reversed(layers):
            if _holds(layer.values, path[:length]):
                return layer.source
    return "default"


def _holds(values: Any, path: Sequence[str]) -> bool:
    for name in path:
        if not isinstance(values, Mapping) or name not in values:
            return False
        values = values[name]
    return True


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
