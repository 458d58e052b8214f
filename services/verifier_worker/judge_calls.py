"""The record of a verification's model calls (judge.md §8.2), and the models that answer from such a record.

Invariant: the record has every call in the order in which they were begun, with the reply as it came; a reply is reused only
for the same name, prompt and parameters, and each at most once.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from environments.common.judging import purpose
from environments.context import ModelClient
from environments.response import Response
from services.models.named import Answer
from services.verifier_worker.line import JUDGE_CALLS

__all__ = ["JUDGE_CALLS", "Recorder", "Replay"]

_PROMPT = ("input", "instructions", "metadata")
"""What a judge reads of a request; everything else are its parameters."""


class Recorder(Mapping[str, ModelClient]):
    """The models of one verification; `calls` is the record so far, ready for the result line."""

    def __init__(self, models: Mapping[str, ModelClient], now: Callable[[], float] = time.monotonic) -> None:
        self._models = models
        self.now = now
        self.calls: list[dict[str, Any]] = []

    def __getitem__(self, name: str) -> ModelClient:
        return _Recorded(name, self._models[name], self)

    def __iter__(self) -> Iterator[str]:
        return iter(self._models)

    def __len__(self) -> int:
        return len(self._models)


@dataclass(frozen=True, slots=True)
class _Recorded:
    name: str
    client: ModelClient
    recorder: Recorder

    async def create(self, params: Mapping[str, Any]) -> Response:
        call: dict[str, Any] = {"name": self.name, **_identity(params)}
        if purpose():
            call["purpose"] = purpose()
        self.recorder.calls.append(call)
        started = self.recorder.now()
        try:
            response = await self.client.create(params)
        except Exception as e:
            call |= {"error": f"{type(e).__name__}: {e}", "latency_s": self._since(started)}
            raise
        call |= self._answered(response, started)
        return response

    def _answered(self, response: Response, started: float) -> dict[str, Any]:
        facts: dict[str, Any] = {"latency_s": self._since(started)}
        if isinstance(response, Answer):
            facts = {"endpoint": response.endpoint, "model": response.model, "tries": response.tries}
            facts |= {"latency_s": round(response.latency_s, 3), "reused": response.reused}
        return facts | {"usage": dict(response.usage) or None, "response": response.body}

    def _since(self, started: float) -> float:
        return round(self.recorder.now() - started, 3)


@dataclass(slots=True)
class Replay(Mapping[str, ModelClient]):
    """Models that answer from the record of an earlier verification, and call `models` for what is not in it."""

    record: Sequence[Any]
    models: Mapping[str, ModelClient]
    _left: list[Mapping[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        self._left = [c for c in self.record if isinstance(c, Mapping) and isinstance(c.get("response"), Mapping)]

    def take(self, name: str, params: Mapping[str, Any]) -> Answer | None:
        """The first reply left for such a call; it is not given again."""
        wanted = {"name": name, **_identity(params)}
        found = next((c for c in self._left if all(c.get(k) == v for k, v in wanted.items())), None)
        if found is None:
            return None
        self._left.remove(found)
        said, model, tries, took = (found.get(k) for k in ("endpoint", "model", "tries", "latency_s"))
        return Answer(found["response"], str(said or ""), str(model or ""), int(tries or 0), float(took or 0.0), reused=True)

    def __getitem__(self, name: str) -> ModelClient:
        if name not in self.models and not any(c.get("name") == name for c in self._left):
            raise KeyError(name)
        return _Replayed(name, self)

    def __iter__(self) -> Iterator[str]:
        return iter(self.models)

    def __len__(self) -> int:
        return len(self.models)


@dataclass(frozen=True, slots=True)
class _Replayed:
    name: str
    replay: Replay

    async def create(self, params: Mapping[str, Any]) -> Response:
        return self.replay.take(self.name, params) or await self.replay.models[self.name].create(params)


def _identity(params: Mapping[str, Any]) -> dict[str, Any]:
    """What makes two calls the same: a hash of the prompt (SHA-256 of its canonical JSON), and the other parameters."""
    prompt = json.dumps({k: params[k] for k in _PROMPT if k in params}, sort_keys=True, separators=(",", ":")).encode()
    others = {k: v for k, v in params.items() if k not in _PROMPT}
    return {"prompt_hash": hashlib.sha256(prompt).hexdigest(), "params": others}
