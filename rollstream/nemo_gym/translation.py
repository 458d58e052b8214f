"""A configuration of the reference as settings of ours: a pure function over the merged tree.

Owns the outcome's form. Invariant: every key of the tree is in the settings, among the command's own keys, or in the remarks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from environments.registry import Registry
from environments.words import near_word
from rollstream.nemo_gym import keys
from rollstream.nemo_gym.blocks import TYPO, Block, Kind, is_like_block, read_blocks
from rollstream.nemo_gym.errors import ConfigurationError, Level, Remark
from rollstream.nemo_gym.merging import Merged
from rollstream.nemo_gym.served import model_of
from rollstream.nemo_gym.variants import Variants, model_key, pairs, policy_of

_POLICY_NAMES = {"policy_base_url": "url", "policy_api_key": "api_key", "policy_model_name": "name"}


@dataclass(frozen=True, slots=True)
class Translation:
    """What a configuration means here.

    `settings`: nested as a settings file has them (`model`, `models`, `variants`), secrets in clear. `agents`: the variant of
    each agent that the configuration has. `datasets`: the entries of each agent. `command`: keys that the command itself reads.
    """

    settings: Mapping[str, Any]
    agents: Mapping[str, str]
    datasets: Mapping[str, Sequence[Mapping[str, Any]]]
    command: Mapping[str, Any]
    remarks: tuple[Remark, ...]

    @property
    def errors(self) -> list[Remark]:
        """What must be put right first."""
        return [r for r in self.remarks if r.level is Level.ERROR]

    def checked(self) -> Translation:
        """Itself; raises `ConfigurationError` with all errors when there are any."""
        if self.errors:
            raise ConfigurationError.of(str(r) for r in self.errors)
        return self


def translate(merged: Merged, registry: Registry, find: Callable[[str], Path | None] = lambda _: None) -> Translation:
    """The meaning of a tree. `registry` holds the shipped environments, `find` finds files that values name."""
    like_blocks = [k for k, v in merged.values.items() if k not in keys.ALL and is_like_block(v)]
    blocks, remarks = read_blocks(merged, like_blocks)
    remarks += _others(merged, like_blocks)
    policy, elsewhere = policy_of(blocks)
    remarks += [_another_policy(block, name, policy, merged) for block, name in elsewhere]
    settings, said = _models(blocks, policy, merged)
    variants = Variants(registry, policy, find, merged.where)
    for server, agent in pairs(blocks):
        variants.add(server, agent)
    if variants.own:
        settings["variants"] = {n: v.model_dump(mode="json", exclude_defaults=True) for n, v in variants.own.items()}
    datasets = {b.instance: _datasets(b) for b in blocks if b.kind is Kind.AGENT and _datasets(b)}
    command = {k: v for k, v in merged.values.items() if k in keys.COMMAND_KEYS | keys.HUB_KEYS | keys.HANDLED}
    return Translation(settings, variants.agents, datasets, command, (*remarks, *said, *variants.remarks))


def _models(blocks: Sequence[Block], policy: str, merged: Merged) -> tuple[dict[str, Any], list[Remark]]:
    remarks: list[Remark] = []
    found: dict[str, dict[str, Any]] = {}
    for block in (b for b in blocks if b.kind is Kind.MODEL):
        values, said = model_of(block)
        remarks += [Remark(level, block.key(key), merged.where(block.path(key)), text) for level, key, text in said]
        name = model_key(block.instance, policy)
        if name in found:
            remarks.append(
                Remark(Level.ERROR, block.key(), merged.where(block.path("")), f"another block is models.{name} already")
            )
        if values:
            found[name] = values
    model = found.pop("policy", None) or {
        ours: merged.values[theirs] for theirs, ours in _POLICY_NAMES.items() if merged.values.get(theirs)
    }
    return {k: v for k, v in (("model", model), ("models", found)) if v}, remarks


def _others(merged: Merged, like_blocks: Sequence[str]) -> list[Remark]:
    """What is said of the top-level keys that are no blocks."""
    out = []
    for key in merged.values:
        if key in like_blocks or key in keys.POLICY_KEYS | keys.COMMAND_KEYS | keys.HUB_KEYS | keys.HANDLED:
            continue
        found = _said(key, merged)
        if found is not None:
            out.append(Remark(found[0], key, merged.where([key]), found[1]))
    return out


def _said(key: str, merged: Merged) -> tuple[Level, str] | None:
    if key in keys.NO_EFFECT:
        return Level.NOTE, f"has no effect: {keys.NO_EFFECT[key]}"
    if key in keys.NOT_YET:
        return Level.IGNORED, keys.NOT_YET[key]
    if key in merged.referred:
        return None  # a name of the author's own, for interpolations
    near = near_word(key, keys.ALL, TYPO)
    if near:
        return Level.ERROR, f"unknown key; did you mean {near}?"
    return Level.IGNORED, "unknown key, and nothing refers to it"


def _another_policy(block: Block, name: str, policy: str, merged: Merged) -> Remark:
    text = f"a pipeline has one policy, here {policy}, and this agent asks {name}; run it on its own"
    return Remark(Level.ERROR, block.key("model_server"), merged.where(block.path("model_server")), text)


def _datasets(block: Block) -> list[dict[str, Any]]:
    found = block.values.get("datasets")
    return [d for d in found if isinstance(d, dict)] if isinstance(found, list) else []
