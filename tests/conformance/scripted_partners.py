"""Environments that answer with a case's scripted bodies: what an environment's server would have said, in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from environments.aviary.episode import AviaryEnvironment, Call, Opening, Outcome
from environments.common.gymnasium import GymnasiumEnvironment, Reset, Stepped
from environments.environment import Context, Response


class Script:
    """The bodies, and the order of requests (`calls`): routes of the environment, and `model`."""

    def __init__(self, replies: Iterator[Mapping[str, Any]]) -> None:
        self.replies = replies
        self.calls: list[str] = []

    def body(self, route: str) -> Mapping[str, Any]:
        self.calls.append(route)
        return next(self.replies, {}).get("body") or {}


class ScriptedGymnasium(GymnasiumEnvironment):
    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script

    async def reset(self, task: Any, episode: Any, context: Context) -> Reset:
        return Reset(**self.script.body("/reset"))

    async def step(self, task: Any, response: Response, episode: Any, context: Context, request_id: str | None) -> Stepped:
        return Stepped(**self.script.body("/step"))

    async def shut(self, task: Any, episode: Any, context: Context) -> None:
        self.script.body("/close")


class ScriptedAviary(AviaryEnvironment):
    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script

    async def reset(self, task: Any, episode: Any, context: Context) -> Opening:
        body = self.script.body("/seed_session")
        episode.env_id = body["env_id"]
        return Opening(_messages(body["obs"]), tuple(body["tools"]))

    async def step(self, task: Any, calls: Sequence[Call], episode: Any, context: Context) -> Outcome:
        body = self.script.body("/step")
        return Outcome(_messages(body["obs"]), body["reward"], body["done"])

    async def close(self, task: Any, state: Any, context: Context) -> None:
        self.script.body("/close")


def _messages(obs: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    return tuple({"type": "message", **o} for o in obs)
