"""Agents of one's own, for tests of the agent worker: each does one thing that `simple_agent` never does."""

from __future__ import annotations

from collections.abc import Sequence

from environments.agents.agent import (
    Agent,
    AskEnvironment,
    CallModel,
    CallTools,
    CloseEnvironment,
    Finish,
    ModelRequest,
    Step,
    View,
)
from environments.response import Response
from schemas.errors import ModelError


class Parallel(Agent):
    """Three model calls at once, then the end."""

    def next(self, view: View, replies: Sequence[Response]) -> Step:
        if not replies:
            asked = tuple(ModelRequest([{"role": "user", "content": f"path {i}"}]) for i in range(3))
            return Step(CallModel(asked))
        return Step(Finish({"metadata": {"paths": "3"}}), [i for r in replies for i in r.output])


class Partner(Agent):
    """A conversation with the environment, which moves after every turn and ends it."""

    def next(self, view: View, replies: Sequence[Response]) -> Step:
        if replies:
            return Step(AskEnvironment(), replies[-1].output)
        return Step(Finish() if view.done else CallModel())


class Opening(Partner):
    """The environment moves first."""

    def next(self, view: View, replies: Sequence[Response]) -> Step:
        if not replies and not view.turn and not view.items():
            return Step(AskEnvironment())
        return super().next(view, replies)


class Insisting(Partner):
    """Lets the environment move again when it has not ended the rollout."""

    def next(self, view: View, replies: Sequence[Response]) -> Step:
        if not replies and view.turn and not view.done:
            return Step(AskEnvironment())
        return super().next(view, replies)


class Lost(Agent):
    """Never says anything that can be done."""

    def next(self, view: View, replies: Sequence[Response]) -> Step:
        match view.params["input"]:
            case "no calls":
                return Step(CallTools(()))
            case "no requests":
                return Step(CallModel(()))
            case "no model":
                return Step(CallModel((ModelRequest(model="judge"),)))
        raise ValueError("thrown on purpose")


class Silent(Agent):
    """Ends without asking anybody."""

    def next(self, view: View, replies: Sequence[Response]) -> Step:
        return Step(Finish())


class Careful(Agent):
    """Is told of failed calls and asks twice; closes the environment, then ends with what it knows, or with the failure."""

    def next(self, view: View, replies: Sequence[Response]) -> Step:
        if "error" in view.memory:
            raise ModelError(view.memory["error"])
        if view.memory.get("closing"):
            seen = {"responses_create_params": {"input": "as sent"}, "state": view.state(), "tries": view.turn, "reward": 7}
            return Step(Finish(result=seen))
        if replies:
            return Step(CloseEnvironment() if view.closable else Finish(), replies[-1].output, {"closing": True})
        if view.failure is not None and view.turn > 1:
            return Step(CloseEnvironment(), memory={"error": f"asked twice: {view.failure}"})
        request = ModelRequest(keep=frozenset({"top_p"}), params={"user": "u"}, timeout_s=7.0)
        return Step(CallModel((request,), on_failure="tell"))
