"""A training sample out of the calls of an agent that we do not control (platform.md D8).

Calls whose prompt begins with all tokens of an earlier call extend it. Invariant: one chain is delivered, the one that began
first; a sample that leaves anything open says so in `mask_sample`, and what was captured but not delivered is counted.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from services.models.convert.chat_messages import TOKEN_FIELDS

PROMPT, GENERATION, _ = TOKEN_FIELDS


@dataclass(eq=False, slots=True)
class _Node:
    """A call in the forest; tokens as bytes, four for each, so that prefixes are compared at C speed."""

    record: Mapping[str, Any]
    order: int
    prompt: bytes
    full: bytes
    children: list[_Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Sample:
    """What is delivered: the records of one chain in order, whether to mask it and why, and the counts of D8."""

    chain: tuple[Mapping[str, Any], ...]
    mask_sample: bool
    reasons: tuple[str, ...]
    metrics: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        """The sample with its items, each call's token fields on the item it names."""
        output = [item for record in self.chain for item in _items(record)]
        capture = {**self.metrics, "status": "masked" if self.mask_sample else "ok", "reasons": list(self.reasons)}
        return {"output": output, "mask_sample": self.mask_sample, "_ng_token_capture": capture}


def build(records: Sequence[Mapping[str, Any]], *, incomplete: bool = False) -> Sample:
    """The sample of a rollout's token records; `incomplete`: a call is missing from them."""
    ordered = sorted(records, key=lambda r: float(r.get("created_at") or 0))
    nodes = [_node(r, i) for i, r in enumerate(ordered) if r[GENERATION]]
    roots, quarantined = _forest(nodes)
    unresolved = _drop_superseded(roots)
    chains = [path for root in roots for path in _paths(root)]
    chain = chains[0] if chains else []
    reasons = {
        "several_roots": len(roots) > 1,
        "several_chains": len(chains) > 1,
        "unresolved_siblings": unresolved,
        "quarantined_calls": bool(quarantined),
        "incomplete": incomplete,
        "no_tokens": not chains,
    }
    captured = sum(len(r[GENERATION]) for r in ordered)
    delivered = sum(len(n.record[GENERATION]) for n in chain)
    metrics = {
        "n_calls": len(ordered),
        "chains": len(chains),
        "roots": len(roots),
        "quarantined_calls": quarantined,
        "quarantined_fraction": quarantined / len(ordered) if ordered else 0.0,
        "delivered_fraction": delivered / captured if captured else 0.0,
        "generated_tokens_captured": captured,
        "generated_tokens_delivered": delivered,
        "empty_generation_calls": len(ordered) - len(nodes),
    }
    found = tuple(name for name, holds in reasons.items() if holds)
    return Sample(tuple(n.record for n in chain), bool(found), found, metrics)


def _node(record: Mapping[str, Any], order: int) -> _Node:
    prompt = array("I", record[PROMPT]).tobytes()
    return _Node(record, order, prompt, prompt + array("I", record[GENERATION]).tobytes())


def _forest(nodes: list[_Node]) -> tuple[list[_Node], int]:
    """Each call under the longest earlier one that it extends; roots, and how many calls had two such parents."""
    roots: list[_Node] = []
    placed: list[_Node] = []
    quarantined = 0
    for node in nodes:
        parents = [p for p in placed if len(p.full) <= len(node.prompt) and node.prompt.startswith(p.full)]
        longest = max((len(p.full) for p in parents), default=0)
        parents = [p for p in parents if len(p.full) == longest]
        if len(parents) > 1:
            quarantined += 1
            continue
        (parents[0].children if parents else roots).append(node)
        placed.append(node)
    return roots, quarantined


def _drop_superseded(roots: list[_Node]) -> bool:
    """Of calls with one prompt (retries) keep those that were extended; whether some of the rest are still open.

    Changes the lists. An open pair keeps its first member.
    """
    unresolved = False
    open_ = [roots]
    while open_:
        siblings = open_.pop()
        by_prompt: dict[bytes, list[_Node]] = defaultdict(list)
        for node in siblings:
            by_prompt[node.prompt].append(node)
        kept: list[_Node] = []
        for same in by_prompt.values():
            extended = [n for n in same if n.children]
            unresolved |= len(same) > 1 and not extended
            kept += extended or same[:1]
        siblings[:] = sorted(kept, key=lambda n: n.order)
        open_ += [n.children for n in siblings]
    return unresolved


def _paths(root: _Node) -> list[list[_Node]]:
    """Every way from a root to a leaf, the earliest first. Iterative: a rollout may have thousands of calls in a row."""
    found: list[list[_Node]] = []
    open_: list[list[_Node]] = [[root]]
    while open_:
        path = open_.pop()
        while len(path[-1].children) == 1:
            path.append(path[-1].children[0])
        if path[-1].children:
            open_ += [[*path, child] for child in reversed(path[-1].children)]
        else:
            found.append(path)
    return found


def _items(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    items = [dict(i) for i in record["output_items"]]
    at = record.get("token_item_index", len(items) - 1)
    items[at] |= {f: record[f] for f in TOKEN_FIELDS}
    if record.get("routed_experts") is not None:
        items[at]["routed_experts"] = record["routed_experts"]
    return items
