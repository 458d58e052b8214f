"""Attempts until one is right (math_formal_lean.md, "Agent"; agents.md, "proof_refinement_agent").

Invariant: every attempt but the first answers one prompt, which is the environment's answer to the attempt before; the
conversation is not kept. What the model and the environment said stays in the conversation's items, once, and the list of
attempts is put together from it at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from environments.agents.agent import Agent, AgentConfig, AskEnvironment, CallModel, Finish, ModelRequest, Step, View
from environments.response import Item, Response

KEPT = frozenset({"model", "temperature", "top_p"})
"""Parameters of the row that a correction is asked with; the others are for the first attempt."""


class ProofRefinementConfig(AgentConfig):
    """`max_correction_turns`: attempts after the first. `include_all_attempts`: whether the line lists every attempt."""

    max_correction_turns: int = Field(default=0, ge=0, le=100)
    include_all_attempts: bool = True


class ProofRefinement(Agent):
    """Ask for a proof, let the environment judge it, ask again with its answer as the whole prompt.

    The environment ends the rollout, or answers with one user message. Its state has `attempts`: an object for each, whose
    fields are listed with it.
    """

    Config: ClassVar[type[AgentConfig]] = ProofRefinementConfig

    def next(self, view: View, replies: Sequence[Response]) -> Step:
        made: list[dict[str, Any]] = list(view.memory.get("attempts", ()))
        if replies:
            reply = replies[-1]
            start = len(view.items())
            frame = {k: v for k, v in reply.body.items() if k != "output"}
            made.append({"start": start, "end": start + len(reply.output), "frame": frame})
            return Step(AskEnvironment(), reply.output, {"attempts": made})
        if not made:
            return Step(CallModel())
        prompt = view.items()[made[-1]["end"] :]
        if view.done or not prompt or len(made) > self.config.max_correction_turns:
            return Step(self._finish(view, made))
        return Step(CallModel((ModelRequest(input=prompt, keep=KEPT),)), memory=view.memory)

    def _finish(self, view: View, made: Sequence[Mapping[str, Any]]) -> Finish:
        items = view.items()
        last = made[-1]
        attempts = _attempts(view, items, made) if self.config.include_all_attempts else None
        fields = {"output": list(items[last["start"] : last["end"]])}
        return Finish(fields, {"total_turns": len(made), "all_attempts": attempts})


def _attempts(view: View, items: Sequence[Item], made: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found = []
    facts = view.state().get("attempts") or [{}] * len(made)
    given: Any = view.params.get("input")
    ends = [*(m["start"] for m in made[1:]), len(items)]
    for attempt, known, end in zip(made, facts, ends, strict=True):
        output = list(items[attempt["start"] : attempt["end"]])
        answer = list(items[attempt["end"] : end])
        found.append(
            {
                "input": given,
                "response": {**attempt["frame"], "output": output},
                "generation": _generation(output),
                **known,
                "correction_prompt": answer[0].get("content") if answer else None,
            }
        )
        given = answer
    return found


def _generation(output: Sequence[Item]) -> str:
    """The first text of the last message."""
    message: Item = next((i for i in reversed(output) if i.get("type", "message") == "message"), {})
    content = message.get("content")
    if isinstance(content, str):
        return content
    texts = (p.get("text") for p in content or () if isinstance(p, Mapping))
    return next((t for t in texts if isinstance(t, str)), "")
