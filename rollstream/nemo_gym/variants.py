"""Blocks of resources servers and agents as variants of our environments (platform.md E4).

Owns how a pair of blocks becomes one variant. Invariant: a pair that means a shipped variant, unchanged, becomes none; a key is
translated, known to mean nothing here, or reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from environments.discovery import Entry
from environments.manifest import AgentBlock
from environments.own import OwnVariant
from environments.registry import Registry, agent_class, agent_types, environment_class
from environments.words import near_word, nearest
from rollstream.nemo_gym.blocks import ABOUT, POLICY, SERVING, TYPO, Block, Kind, reference
from rollstream.nemo_gym.errors import Level, Remark
from schemas.errors import DataError

_PAIRING = frozenset({"resources_server", "model_server", "datasets"})
_FILE = re.compile(r"_(fpath|path|file)$")


def model_key(instance: str, policy: str) -> str:
    """What the model of an instance is called in our settings: `judge_model` is `judge`."""
    if instance == policy:
        return "policy"
    name = re.sub(r"[^a-z0-9]+", "_", instance.lower().removesuffix("_model")).strip("_")
    return name if name[:1].isalpha() and name != "policy" else f"model_{name}"


@dataclass(slots=True)
class Variants:
    """Translates pairs of blocks, one call of `add` each; `own` and `remarks` are the outcome, `agents` maps names to variants.

    `find` finds files of a configuration, `where` tells which file set a key.
    """

    registry: Registry
    policy: str
    find: Callable[[str], Path | None]
    where: Callable[[Sequence[str]], str]
    own: dict[str, OwnVariant] = field(default_factory=dict)
    agents: dict[str, str] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)

    def add(self, server: Block, agent: Block | None) -> None:
        """The variant of a resources server and one of its agents; without one it gets an agent of the usual kind."""
        entry = self._entry(server)
        block = agent or Block(f"{server.instance}_simple_agent", Kind.AGENT, "simple_agent", {})
        agents = self._agent_type(block)
        if entry is None or agents is None:
            return
        config = self._config(server, environment_class(entry).Config, {*SERVING, *ABOUT}, entry.folder)
        steps = self._config(block, agents.Config, {*SERVING, *_PAIRING}, None)
        if config is None or steps is None:
            return
        name = server.instance if server.instance not in self.own.keys() | set(self.agents.values()) else block.instance
        made = AgentBlock(name=block.instance, type=block.implementation, config=steps)
        self.agents[block.instance] = name
        if not self._is_shipped(name, entry, config, made):
            self.own[name] = OwnVariant(environment=entry.manifest.name, agent=made, config=config)

    def _entry(self, server: Block) -> Entry | None:
        try:
            return self.registry.entry_of(server.implementation)
        except DataError:
            names = [n for e in self.registry.entries for n in (e.manifest.name, *e.manifest.variants)]
            text = (
                f"there is no environment {server.implementation!r} here{nearest(server.implementation, names)}; a server of "
                f"your own becomes one with `rollstream environment new {server.implementation}` (docs/environments.md)"
            )
            self._say(Level.ERROR, server, "", text)
            return None

    def _agent_type(self, block: Block) -> Any:
        shipped = {v.agent.type for e in self.registry.entries for v in e.manifest.variants.values()}
        if block.implementation not in {*agent_types(), *shipped}:
            text = f"there is no agent {block.implementation!r} here{nearest(block.implementation, agent_types())}"
            self._say(Level.ERROR, block, "", text)
            return None
        return agent_class(block.implementation)

    def _config(self, block: Block, form: type[BaseModel], known: set[str], folder: Path | None) -> dict[str, Any] | None:
        """What of the block is configuration; None when it cannot be used."""
        found: dict[str, Any] = {}
        bad = False
        for key, value in block.values.items():
            if key in form.model_fields:
                found |= self._value(block, key, value, folder)
            elif key not in known:
                bad |= self._stranger(block, key, [*form.model_fields, *known])
        try:
            form.model_validate(found)
        except ValidationError as e:
            for error in e.errors(include_url=False, include_input=False, include_context=False):
                self._say(Level.ERROR, block, ".".join(map(str, error["loc"])), error["msg"].removeprefix("Value error, "))
            return None
        return None if bad else found

    def _value(self, block: Block, key: str, value: Any, folder: Path | None) -> dict[str, Any]:
        if (found := reference(value)) and found[0] is Kind.MODEL:
            return {key: model_key(found[1], self.policy)}
        if not (_FILE.search(key) and isinstance(value, str) and folder is not None) or (folder / value).is_file():
            return {key: value}
        path = self.find(value) or self.find(f"{block.kind.value}/{block.implementation}/{value}")
        if path is not None:
            return {key: str(path)}
        self._say(Level.IGNORED, block, key, f"there is no file {value}; the environment's own is used")
        return {}

    def _stranger(self, block: Block, key: str, known: Sequence[str]) -> bool:
        """Report a key that nobody knows; whether it is a misspelling."""
        near = near_word(key, known, TYPO)
        if near:
            self._say(Level.ERROR, block, key, f"{block.implementation} has no such option; did you mean {near!r}?")
        else:
            self._say(Level.IGNORED, block, key, f"{block.implementation} has no such option here")
        return near is not None

    def _is_shipped(self, name: str, entry: Entry, config: Mapping[str, Any], agent: AgentBlock) -> bool:
        """Whether the shipped variant of that name is the same."""
        variant = entry.manifest.variants.get(name)
        if variant is None or (variant.agent.name, variant.agent.type) != (agent.name, agent.type):
            return False
        form, steps = environment_class(entry).Config, agent_class(agent.type).Config
        same = form.model_validate(variant.config) == form.model_validate(dict(config))
        return same and steps.model_validate(variant.agent.config) == steps.model_validate(agent.config)

    def _say(self, level: Level, block: Block, key: str, text: str) -> None:
        self.remarks.append(Remark(level, block.key(key), self.where(block.path(key)), text))


def pairs(blocks: Sequence[Block]) -> Iterator[tuple[Block, Block | None]]:
    """Each resources server with each agent that names it, or with none."""
    agents = [b for b in blocks if b.kind is Kind.AGENT]
    for server in (b for b in blocks if b.kind is Kind.RESOURCES):
        mine = [a for a in agents if reference(a.values.get("resources_server")) == (Kind.RESOURCES, server.instance)]
        yield from ((server, agent) for agent in (mine or (None,)))


def policy_of(blocks: Sequence[Block]) -> tuple[str, list[tuple[Block, str]]]:
    """The instance that is the policy, and the agents that want another one (each with its name)."""
    wanted = [(b, reference(b.values.get("model_server"))) for b in blocks if b.kind is Kind.AGENT]
    named = [(b, ref[1]) for b, ref in wanted if ref is not None]
    names = list(dict.fromkeys(name for _, name in named))
    policy = POLICY if POLICY in names or not names else names[0]
    return policy, [(block, name) for block, name in named if name != policy]
