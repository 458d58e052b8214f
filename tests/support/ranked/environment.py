"""An environment that scores the rollouts of a task together: by the length of their answers, or as the row says not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from support.faulty.environment import act

from environments.context import Context
from environments.environment import Environment, Member, Response, Reverify, Seed, Task, Verdict
from schemas.errors import InfrastructureError


class RankedTask(Task):
    """`fails`: rollouts that fail when they are seeded. `group_does`: see `support.faulty.environment.act`."""

    fails: tuple[int, ...] = ()
    group_does: str = "ok"
    number: int = 0


class Ranked(Environment):
    """Reward: how many of the group are shorter. `group` are the rollouts that were scored together, in order of arrival."""

    Task = RankedTask
    reverify = Reverify.STATELESS
    scoring = "group"

    def seed(self, task: RankedTask, context: Context) -> Seed:
        if int(context.rollout_id.split("-")[1]) in task.fails:
            raise InfrastructureError("this rollout fails on purpose")
        return Seed()

    async def verify_group(self, members: Sequence[Member], context: Context) -> list[Verdict]:
        if (waiting := act(members[0].task.group_does)) is not None:
            await waiting
        lengths = [_length(m.response) for m in members]
        indices = [m.rollout_index for m in members]
        return [Verdict(float(sum(other < length for other in lengths)), group=indices) for length in lengths]


def _length(response: Response) -> int:
    return len(response.joined_text())


def answer(text: str) -> dict[str, Any]:
    """A response of the policy."""
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
    return {"id": "resp_1", "object": "response", "status": "completed", "error": None, "output": [message], "usage": None}
