"""Which environments and agents exist, by name.

Owns the way from a name to what runs a rollout. Invariant: an environment's class is imported the first time a rollout
needs it, and one that cannot be imported fails its own rollouts only, each with the reason.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from pydantic import ValidationError

from environments.agents.agent import Agent
from environments.discovery import Broken, Entry, discover
from environments.environment import Environment
from environments.extras import Extras
from environments.manifest import Variant
from environments.own import OwnVariant, declared, with_own
from schemas.errors import DataError
from schemas.rows import describe

__all__ = ["Binding", "Broken", "Entry", "Registry", "agent_types", "environment_class", "make_agent", "make_environment"]

_AGENTS = {
    "simple_agent": "environments.agents.simple_agent:SimpleAgent",
    "non_executing_simple_agent": "environments.agents.single_call:SingleCall",
    "tool_simulation_agent": "environments.agents.single_call:SingleCall",
    "proof_refinement_agent": "environments.agents.proof_refinement:ProofRefinement",
    "aviary_agent": "environments.agents.aviary_agent:AviaryAgent",
    "gymnasium_agent": "environments.agents.gymnasium_agent:GymnasiumAgent",
    "dialogue_agent": "environments.agents.dialogue_agent:DialogueAgent",
    "finance_agent": "environments.agents.finance_agent:FinanceAgent",
    "orchestrator_agent": "environments.agents.orchestrator:Orchestrator",
    "parallel_thinking_agent": "environments.agents.parallel_thinking:ParallelThinking",
    "reflection_agent": "environments.agents.reflection:Reflection",
    "remote_agent": "environments.agents.remote_agent:RemoteAgent",
    "rewoo_agent": "environments.agents.rewoo:Rewoo",
}


@dataclass(frozen=True, slots=True)
class Binding:
    """What runs a rollout: a variant of an environment and its agent."""

    name: str
    environment: Environment
    agent: Agent
    agent_name: str


class Registry:
    """Environments by name of folder, variant or agent; `first`: variants that win where several have an agent's name."""

    def __init__(self, entries: Iterable[Entry], broken: Iterable[Broken] = (), first: Collection[str] = ()) -> None:
        self._first = frozenset(first)
        self._entries = {e.manifest.name: e for e in entries}
        self._broken = {b.name: b for b in broken}
        self._bindings: dict[tuple[str, str], Binding | DataError] = {}
        self._extras = Extras()

    @classmethod
    def load(cls, own: Mapping[str, OwnVariant] | None = None) -> Registry:
        """All environments, those that other packages register included, and variants of one's own (by default the declared).

        Raises `DataError` when the declared ones cannot be read.
        """
        mine = declared() if own is None else own
        return cls(*with_own(*discover(), mine), first=mine.keys())

    @property
    def broken(self) -> list[Broken]:
        """What was found and cannot be used, by name, with the reason."""
        return [self._broken[name] for name in sorted(self._broken)]

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
        if name in self._broken:
            raise DataError(f"environment {name!r} cannot be used: {self._broken[name].error}")
        raise DataError(_unknown("environment", name, [*self._variants, *self._entries]))

    def entry_of(self, variant: str) -> Entry:
        """The environment that has the variant; raises `DataError`."""
        return self._variants[self.variant_of(variant)][0]

    def _named(self, name: str, table: dict[str, tuple[Entry, str]], what: str) -> Binding:
        if (what, name) not in self._bindings:
            key = self.variant_of(name) if what == "environment" else name
            if key not in table:
                raise DataError(_unknown(what, name, list(table)))
            self._bindings[what, name] = _bound(*table[key], self._extras)
        found = self._bindings[what, name]
        if isinstance(found, DataError):
            raise DataError(str(found))  # a new one each time: a raised exception collects tracebacks
        return found

    @cached_property
    def _variants(self) -> dict[str, tuple[Entry, str]]:
        return {v: (e, v) for e in self._entries.values() for v in e.manifest.variants}

    @cached_property
    def _agents(self) -> dict[str, tuple[Entry, str]]:
        found: dict[str, tuple[Entry, str]] = {}
        every = [(e, v, block) for e in self._entries.values() for v, block in e.manifest.variants.items()]
        for entry, variant, block in sorted(every, key=lambda each: each[1] not in self._first):
            found.setdefault(block.agent.name, (entry, variant))  # of variants with one agent, the first
        return found


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


def agent_class(kind: str) -> type[Agent]:
    """The class of an agent: one of `agent_types`, or one of the environment's own, as `module:Class`.

    Raises `DataError` for an unknown type.
    """
    path = kind if ":" in kind else _AGENTS.get(kind)
    if path is None:
        raise DataError(_unknown("agent type", kind, list(_AGENTS)))
    module, name = path.split(":")
    cls: type[Agent] = getattr(importlib.import_module(module), name)
    return cls


def make_agent(variant: Variant) -> Agent:
    """The agent of a variant; raises `DataError` for an unknown type."""
    cls = agent_class(variant.agent.type)
    return cls(cls.Config.model_validate(variant.agent.config))


def _bound(entry: Entry, variant: str, extras: Extras) -> Binding | DataError:
    """The binding, or why there is none; kept, so that a broken package is not imported again for every rollout."""
    block = entry.manifest.variants[variant]
    lack = extras.lacking(entry.distribution, entry.manifest.extra)
    if lack:
        return DataError(f"environment {variant!r} cannot be used: {lack}")
    try:
        return Binding(variant, make_environment(entry, block), make_agent(block), block.agent.name)
    except ValidationError as e:
        return DataError(f"environment {variant!r} cannot be used: {describe(e, 'config')}")
    except DataError as e:
        return DataError(f"environment {variant!r} cannot be used: {e}")
    except Exception as e:  # noqa: BLE001 - other people's packages may fail in any way
        return DataError(f"environment {variant!r} cannot be used: {type(e).__name__}: {e}")


def _unknown(what: str, name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f" (there are: {', '.join(sorted(set(known))) or 'none'})"
    return f"unknown {what} {name!r}{hint}"
