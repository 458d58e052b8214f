"""Which environments and agents exist, by name.

Owns discovery: the folders beside this file, and the entry points `rollstream.environments` of other packages. Invariant:
finding out what exists imports no environment; a class is imported the first time a rollout needs it.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path

from environments.agents.agent import Agent
from environments.environment import Environment
from environments.manifest import Manifest, Variant, load_manifest
from schemas.errors import DataError

ENTRY_POINTS = "rollstream.environments"

_AGENTS = {
    "simple_agent": "environments.agents.simple_agent:SimpleAgent",
    "non_executing_simple_agent": "environments.agents.single_call:SingleCall",
    "tool_simulation_agent": "environments.agents.single_call:SingleCall",
}


@dataclass(frozen=True)
class Entry:
    """One environment: its manifest, its folder, and the module of its class (`environment` inside the package)."""

    manifest: Manifest
    folder: Path
    package: str


@dataclass(frozen=True, slots=True)
class Binding:
    """What runs a rollout: a variant of an environment and its agent."""

    name: str
    environment: Environment
    agent: Agent
    agent_name: str


class Registry:
    """Environments by name of folder, variant or agent."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = {e.manifest.name: e for e in entries}
        self._bindings: dict[str, Binding] = {}

    @classmethod
    def load(cls) -> Registry:
        """All environments: those of this package and those that other packages register."""
        return cls([*_built_in(), *_registered()])

    @property
    def entries(self) -> list[Entry]:
        """Every environment, by name."""
        return [self._entries[name] for name in sorted(self._entries)]

    def binding(self, variant: str | None, agent: str | None) -> Binding:
        """The binding of a variant (or of an environment with one variant), or of an agent's name.

        Raises `DataError` with the nearest name when neither is known.
        """
        if variant:
            return self._named(variant, self._variants, "environment")
        if agent:
            return self._named(agent, self._agents, "agent")
        raise DataError("the row names no agent (agent_ref) and the prompt no environment")

    def variant_of(self, name: str) -> str:
        """The variant called `name`, or the first variant of the environment called `name`; raises `DataError`."""
        if name in self._variants:
            return name
        entry = self._entries.get(name)
        if entry is not None:
            return next(iter(entry.manifest.variants))
        raise DataError(_unknown("environment", name, [*self._variants, *self._entries]))

    def entry_of(self, variant: str) -> Entry:
        """The environment that has the variant; raises `DataError`."""
        return self._variants[self.variant_of(variant)][0]

    def _named(self, name: str, table: dict[str, tuple[Entry, str]], what: str) -> Binding:
        found = self._bindings.get(name)
        if found is None:
            if what == "environment":
                name = self.variant_of(name)
            if name not in table:
                raise DataError(_unknown(what, name, list(table)))
            entry, variant = table[name]
            found = self._bindings[name] = _bind(entry, variant)
        return found

    @cached_property
    def _variants(self) -> dict[str, tuple[Entry, str]]:
        return {v: (e, v) for e in self._entries.values() for v in e.manifest.variants}

    @cached_property
    def _agents(self) -> dict[str, tuple[Entry, str]]:
        return {b.agent.name: (e, v) for e in self._entries.values() for v, b in e.manifest.variants.items()}


def environment_class(entry: Entry) -> type[Environment]:
    """The class of an environment: the one subclass of `Environment` that its module defines."""
    module = importlib.import_module(f"{entry.package}.environment")
    own = [
        c
        for c in vars(module).values()
        if isinstance(c, type) and issubclass(c, Environment) and c.__module__ == module.__name__
    ]
    if not own:
        raise DataError(f"{module.__name__} defines no Environment")
    return own[-1]


def make_environment(entry: Entry, variant: Variant) -> Environment:
    """An environment configured as `variant` says."""
    cls = environment_class(entry)
    return cls(cls.Config.model_validate(variant.config))


def agent_types() -> list[str]:
    """Names of the agents that every environment may use."""
    return sorted(_AGENTS)


def make_agent(variant: Variant) -> Agent:
    """The agent of a variant: one of `agent_types`, or a class of the environment's own, as `module:Class`.

    Raises `DataError` for an unknown type.
    """
    block = variant.agent
    path = block.type if ":" in block.type else _AGENTS.get(block.type)
    if path is None:
        raise DataError(_unknown("agent type", block.type, list(_AGENTS)))
    module, name = path.split(":")
    cls: type[Agent] = getattr(importlib.import_module(module), name)
    return cls(cls.Config.model_validate(block.config))


def _bind(entry: Entry, variant: str) -> Binding:
    block = entry.manifest.variants[variant]
    return Binding(variant, make_environment(entry, block), make_agent(block), block.agent.name)


def _built_in() -> list[Entry]:
    root = Path(__file__).parent
    folders = sorted(p.parent for p in root.glob("*/config.yaml"))
    return [Entry(load_manifest(f), f, f"environments.{f.name}") for f in folders]


def _registered() -> list[Entry]:
    """Packages that name themselves under `rollstream.environments`; the entry point's value is the package."""
    found = []
    for point in metadata.entry_points(group=ENTRY_POINTS):
        folder = Path(str(importlib.import_module(point.value).__file__)).parent
        found.append(Entry(load_manifest(folder), folder, point.value))
    return found


def _unknown(what: str, name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f" (there are: {', '.join(sorted(set(known))) or 'none'})"
    return f"unknown {what} {name!r}{hint}"
