"""An event as a record.

Owns the bound on what one record may hold. Invariant: nothing that the broker would refuse is handed to a commit, where
it would hold up its whole partition; what is too large ends its own rollout.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemas import codec
from schemas.errors import CapacityError
from schemas.events import ToolCalls, Trajectory, Turn
from schemas.topics import TURNS
from services.runtime.record import Outgoing

MAX_EVENT_BYTES = TURNS.max_message_bytes - (64 << 10)
"""Largest event between two stages: the topics' limit, with room for key, headers and the batch around the record."""


def event_record(
    topic: str, key: bytes, event: Turn | ToolCalls | Trajectory, headers: Sequence[tuple[str, bytes]]
) -> Outgoing:
    """The record of an event; raises `CapacityError` when it is larger than a record may be."""
    value = codec.encode(event)
    if len(value) > MAX_EVENT_BYTES:
        raise CapacityError(
            f"the rollout's next event has {len(value):,} bytes and a record may have {MAX_EVENT_BYTES:,} "
            f"({_largest(event)}); long conversations and rows travel by reference, these do not",
            retryable=False,
        )
    return Outgoing(topic, key, value, headers)


def _largest(event: Turn | ToolCalls | Trajectory) -> str:
    """What of an event can be large in spite of claims."""
    if isinstance(event, Trajectory):
        return f"the environment's state has {len(event.env_state):,}"
    rollout = event.rollout
    sizes = {"environment's state": rollout.env_state, "agent's memory": rollout.memory, "last reply": rollout.reply}
    found = {name: len(data) for name, data in (sizes | {"seed's tools": rollout.tools}).items()}
    if isinstance(event, ToolCalls):
        found["tool calls"] = sum(len(c.arguments) for c in event.calls)
    name = max(found, key=lambda n: found[n])
    return f"the {name} has {found[name]:,}" if name != "tool calls" else f"the arguments of its calls have {found[name]:,}"
