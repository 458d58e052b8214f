"""Server blocks (platform.md E4): `INSTANCE: {KIND: {IMPLEMENTATION: {entrypoint, …}}}`.

Owns what is one, what almost is one, and which block means which. Invariant: a `Block` is whole: one kind, one implementation,
an entrypoint, and references to blocks that are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from environments.words import near_word, nearest
from rollstream.nemo_gym.errors import Level, Remark
from rollstream.nemo_gym.merging import Merged
from rollstream.nemo_gym.shipped import DOMAINS

TYPO = 0.8
"""How like a known word an unknown key must be to be called a misspelling of it, and refused."""


class Kind(StrEnum):
    """The three kinds of servers."""

    MODEL = "responses_api_models"
    RESOURCES = "resources_servers"
    AGENT = "responses_api_agents"


POLICY = "policy_model"
"""The usual instance of the policy."""

SERVING = frozenset({"entrypoint", "host", "port", "num_workers", "provides", "spinup_server", "skip_venv_if_present"})
"""How the reference starts a server: here nothing is started for a block."""

ABOUT = frozenset({"domain", "description", "verified", "verified_url", "value", "allowed_agents", "allowed_model_types"})
"""What a resources server says about itself."""


@dataclass(frozen=True, slots=True)
class Block:
    """One server: the name of its instance, its kind, its implementation and that one's values."""

    instance: str
    kind: Kind
    implementation: str
    values: Mapping[str, Any]

    def key(self, *more: str) -> str:
        """The dotted key of a value in the block."""
        return ".".join((self.instance, self.kind.value, self.implementation, *(m for m in more if m)))

    def path(self, key: str) -> list[str]:
        """The same as parts."""
        return [self.instance, self.kind.value, self.implementation, *(key.split(".") if key else [])]


def read_blocks(merged: Merged, names: Sequence[str]) -> tuple[list[Block], list[Remark]]:
    """The blocks under the top-level keys `names`, and what is wrong with those that almost are some."""
    blocks: list[Block] = []
    remarks: list[Remark] = []
    lenient = merged.values.get("error_on_almost_servers") is False
    for name in names:
        found = _block(name, merged.values[name])
        if isinstance(found, Block):
            blocks.append(found)
        else:
            level = Level.IGNORED if lenient else Level.ERROR
            key, text = found
            remarks.append(Remark(level, key, merged.where(key.split(".")), text))
    remarks += [r for b in blocks for r in _references(b, blocks, merged)]
    return blocks, remarks


def is_like_block(value: Any) -> bool:
    """Whether a value has or almost has a kind of servers in it."""
    return isinstance(value, dict) and any(near_word(str(k), [kind.value for kind in Kind], TYPO) for k in value)


def reference(value: Any) -> tuple[Kind, str] | None:
    """What `{type: KIND, name: INSTANCE}` refers to."""
    if isinstance(value, dict) and set(value) == {"type", "name"} and value["type"] in list(Kind):
        return Kind(value["type"]), str(value["name"])
    return None


def _block(name: str, value: dict[str, Any]) -> Block | tuple[str, str]:
    """The block, or the key that is wrong and why."""
    kinds = [kind.value for kind in Kind]
    wrong = next((str(k) for k in value if k not in kinds), None)
    if wrong is not None:
        return f"{name}.{wrong}", f"this is no kind of servers{nearest(wrong, kinds)}"
    if len(value) > 1:
        return name, f"a block is of one kind, this has {', '.join(sorted(map(str, value)))}"
    kind = Kind(next(iter(value)))
    inner = value[kind.value]
    if not isinstance(inner, dict) or len(inner) != 1:
        found = ", ".join(sorted(map(str, inner))) if isinstance(inner, dict) else repr(inner)
        return f"{name}.{kind.value}", f"expected one implementation, found {found or 'none'}"
    implementation, values = next(iter(inner.items()))
    block = Block(name, kind, str(implementation), values if isinstance(values, dict) else {})
    return _whole(block, values) or block


def _whole(block: Block, values: Any) -> tuple[str, str] | None:
    if not isinstance(values, dict):
        return block.key(), f"expected the server's values, found {values!r}"
    if "entrypoint" not in values:
        return block.key(), "it looks like a server and has no entrypoint; is the name of the instance right?"
    if block.kind is Kind.RESOURCES and values.get("domain") not in DOMAINS:
        domain = values.get("domain")
        text = "it has no domain" if domain is None else f"{domain!r} is no domain{nearest(str(domain), DOMAINS)}"
        return block.key("domain"), text if domain is not None else f"{text}; there are: {', '.join(DOMAINS)}"
    if block.kind is Kind.AGENT and "resources_server" in values and not reference(values["resources_server"]):
        return block.key("resources_server"), "refer to a server as {type: resources_servers, name: INSTANCE}"
    return None


def _references(block: Block, blocks: Sequence[Block], merged: Merged) -> Iterator[Remark]:
    """References to what is not there. The policy may be described by its three keys alone."""
    there = {(b.kind, b.instance) for b in blocks}
    for key, value in block.values.items():
        found = reference(value)
        if found is None or found in there or found == (Kind.MODEL, POLICY):
            continue
        kind, name = found
        hint = nearest(name, [n for k, n in there if k is kind])
        yield Remark(
            Level.ERROR, block.key(key), merged.where(block.path(key)), f"no block of {kind.value} is called {name!r}{hint}"
        )
