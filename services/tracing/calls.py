"""Spans of the calls that a step makes: models and tools.

Attributes are those of OpenTelemetry's semantic conventions for generative AI (gen_ai.*), so dashboards made for those work.
Invariant: a traced call answers and raises what it would have, and spans hold no text of prompts, answers or arguments.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from environments.context import ModelClient
from environments.response import Response
from services.tracing.span import Value
from services.tracing.tracer import Trail

T = TypeVar("T")


async def traced_call(trail: Trail, name: str, model: str, call: Awaitable[T], body_of: Callable[[T], Mapping[str, Any]]) -> T:
    """Await a model call that answers with a Responses object (`body_of` the result); `name` is the model's in our settings."""
    started = trail.tracer.now_ns()
    about: dict[str, Value] = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model, "rollstream.model": name}
    try:
        reply = await call
    except BaseException as e:
        trail.add(f"chat {model}", started, about, type(e).__name__)
        raise
    trail.add(f"chat {model}", started, about | _usage(body_of(reply)))
    return reply


def traced_tool(trail: Trail, name: str, call_id: str, call: Callable[[], T | Awaitable[T]]) -> T | Awaitable[T]:
    """Make a tool call, at once or awaited, as it answers."""
    started = trail.tracer.now_ns()
    about: dict[str, Value] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.id": call_id,
    }
    span = f"execute_tool {name}"
    try:
        made = call()
    except Exception as e:
        trail.add(span, started, about, type(e).__name__)
        raise
    if isinstance(made, Awaitable):
        return _awaited(trail, span, started, about, made)
    trail.add(span, started, about)
    return made


async def _awaited(trail: Trail, span: str, started: int, about: Mapping[str, Value], made: Awaitable[T]) -> T:
    try:
        reply = await made
    except BaseException as e:
        trail.add(span, started, about, type(e).__name__)
        raise
    trail.add(span, started, about)
    return reply


def _usage(body: Mapping[str, Any]) -> dict[str, Value]:
    usage = body.get("usage")
    found = {"gen_ai.response.model": body.get("model"), "gen_ai.response.id": body.get("id")}
    if isinstance(usage, Mapping):
        found["gen_ai.usage.input_tokens"] = usage.get("input_tokens")
        found["gen_ai.usage.output_tokens"] = usage.get("output_tokens")
    return {k: v for k, v in found.items() if isinstance(v, str | int)}


@dataclass(frozen=True, slots=True)
class TracedModels(Mapping[str, ModelClient]):
    """The models of a context, with a span for each call."""

    models: Mapping[str, ModelClient]
    trail: Trail

    def __getitem__(self, name: str) -> ModelClient:
        return _TracedModel(name, self.models[name], self.trail)

    def __iter__(self) -> Iterator[str]:
        return iter(self.models)

    def __len__(self) -> int:
        return len(self.models)


@dataclass(frozen=True, slots=True)
class _TracedModel:
    name: str
    client: ModelClient
    trail: Trail

    async def create(self, params: Mapping[str, Any]) -> Response:
        return await traced_call(self.trail, self.name, self.name, self.client.create(params), lambda reply: reply.body)
