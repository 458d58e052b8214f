"""The conversation of a rollout: its bytes, the request made of them, and what of it travels by reference.

Owns the rule that keeps the wire linear. A turn's event carries the turn's own items; from the third turn on what came
before is stored once, as a claim, and named by two numbers. Invariant: what is settled is what a *consumed* event carried,
so two workers that both take one turn (one of them a ghost) store the same bytes under the same name. The exception is a
turn that is too large for a record: a ghost's other words then lie under another name, and nothing refers to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from environments.agents.agent import ModelRequest
from environments.response import Item, Response
from schemas import jsontext
from schemas.events import Payload, Rollout
from schemas.quick import evolve
from schemas.topics import INLINE_LIMIT
from services.runtime.claims import ClaimStore

SETTLE_FROM_TURN = 2
"""Model calls after which the prefix is settled. Most tool-using rollouts are over by then and never touch the store."""

SETTLE_BYTES = 512
"""A prefix (or row) smaller than this costs less inline than the write would."""


def joined(*parts: bytes) -> bytes:
    """Comma-separated JSON items put one after another; empty parts vanish."""
    return b",".join(p for p in parts if p)


def items_json(items: Sequence[Item]) -> bytes:
    """Items as comma-separated JSON."""
    return b",".join(jsontext.dumps(i) for i in items)


async def settled_items(claims: ClaimStore, rollout: Rollout) -> bytes:
    """The items that travel by reference, in order."""
    if not rollout.settled:
        return b""
    parts = [await claims.fetch(rollout.ref, index, claim) for index, claim in enumerate(rollout.settled)]
    return joined(*parts)


def input_items(params: Mapping[str, Any]) -> bytes:
    """The row's own input as comma-separated items; a string is one user message."""
    given = params.get("input")
    if isinstance(given, str):
        return jsontext.dumps({"role": "user", "content": given})
    return items_json(given or ())


def request_body(request: ModelRequest, params: Mapping[str, Any], conversation: bytes, model: str) -> bytes:
    """The JSON of one Responses request. The endpoint's model name always wins over the row's (platform.md D1)."""
    items = conversation if request.input is None else items_json(request.input)
    body = {**request.params_over(params), "input": jsontext.Fragment(b"[" + items + b"]"), "model": model}
    body.pop("stream", None)
    return jsontext.dumps(body)


async def settle(claims: ClaimStore, rollout: Rollout) -> Rollout:
    """The rollout with what its event carried inline moved to the store, where that pays (see the module)."""
    if rollout.turn < SETTLE_FROM_TURN:
        return rollout
    if len(rollout.items) > SETTLE_BYTES:
        claim = await claims.keep(rollout.ref, len(rollout.settled), rollout.items)
        rollout = evolve(rollout, settled=(*rollout.settled, claim), items=b"")
    if len(rollout.row.data) > SETTLE_BYTES:
        claim = await claims.keep(rollout.ref, "row", rollout.row.data)
        rollout = evolve(rollout, row=Payload(size=claim.size, crc=claim.crc))
    return rollout


async def within_record(claims: ClaimStore, rollout: Rollout) -> Rollout:
    """The rollout with items that are too large for a record moved to the store."""
    if len(rollout.items) <= INLINE_LIMIT:
        return rollout
    claim = await claims.keep(rollout.ref, len(rollout.settled), rollout.items)
    return evolve(rollout, settled=(*rollout.settled, claim), items=b"")


def frame_of(reply: Response) -> bytes:
    """A reply without its output, which is in the conversation."""
    return jsontext.dumps({k: v for k, v in reply.body.items() if k != "output"})


def reply_for_move(reply: Response, append: Sequence[Item], rollout: Rollout) -> bytes:
    """The whole reply, for the environment to answer.

    When its output is what the event's items end with, their number stands for it: the wire carries a turn once.
    """
    inline = bool(rollout.items) and list(append) == reply.output
    return jsontext.dumps({**reply.body, "output": len(append)} if inline else reply.body)
