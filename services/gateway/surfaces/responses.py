"""Responses, as it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from services.gateway.surfaces.surface import Event, error_kind
from services.models.convert import frame


class ResponsesSurface:
    """`POST /v1/responses`."""

    name = "responses"
    path = "/v1/responses"

    def request(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in body.items() if k not in {"stream", "stream_options"}}

    def reply(self, response: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        return dict(response)

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": {"message": message, "type": error_kind(status), "param": None, "code": None}}

    def events(self, response: Mapping[str, Any], body: Mapping[str, Any]) -> Iterable[Event]:  # noqa: ARG002
        begun = {**response, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
        return _numbered(self._events(response, begun))

    def failure(self, status: int, message: str, body: Mapping[str, Any]) -> Iterable[Event]:
        mark, model = frame.mark_of(message), body.get("model")
        empty = frame.response(body, [], mark=mark, created_at=0, model=model, finish=None, usage=None)
        failed = {
            **empty,
            "status": "failed",
            "error": {"code": "server_error" if status >= 500 else error_kind(status), "message": message},  # noqa: PLR2004
        }
        return _numbered(
            [
                ("response.created", {"response": {**failed, "status": "in_progress", "error": None}}),
                ("response.failed", {"response": failed}),
            ]
        )

    def _events(self, response: Mapping[str, Any], begun: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        yield "response.created", {"response": begun}
        yield "response.in_progress", {"response": begun}
        for index, item in enumerate(response["output"]):
            where = {"output_index": index, "item_id": item.get("id") or f"item_{index}"}
            yield "response.output_item.added", {"output_index": index, "item": _empty(item)}
            yield from _inside(item, where)
            yield "response.output_item.done", {"output_index": index, "item": item}
        ended = "incomplete" if response.get("status") == "incomplete" else "completed"
        yield f"response.{ended}", {"response": response}


def _inside(item: Mapping[str, Any], where: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    kind = item.get("type", "message")
    if kind == "function_call":
        text = item.get("arguments") or ""
        yield "response.function_call_arguments.delta", {**where, "delta": text}
        yield "response.function_call_arguments.done", {**where, "arguments": text, "name": item.get("name")}
    elif kind == "reasoning":
        for index, part in enumerate(item.get("summary") or []):
            at = {**where, "summary_index": index}
            yield "response.reasoning_summary_part.added", {**at, "part": {**part, "text": ""}}
            yield "response.reasoning_summary_text.delta", {**at, "delta": part.get("text", "")}
            yield "response.reasoning_summary_text.done", {**at, "text": part.get("text", "")}
            yield "response.reasoning_summary_part.done", {**at, "part": part}
    elif kind == "message":
        content = item.get("content")
        for index, part in enumerate(content if isinstance(content, list) else []):
            yield from _of_part(part, {**where, "content_index": index})


def _of_part(part: Mapping[str, Any], at: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    field = "refusal" if part.get("type") == "refusal" else "text"
    kind = "refusal" if field == "refusal" else "output_text"
    text = part.get(field) or ""
    yield "response.content_part.added", {**at, "part": {**part, field: ""}}
    yield f"response.{kind}.delta", {**at, "delta": text, **({} if field == "refusal" else {"logprobs": []})}
    yield f"response.{kind}.done", {**at, field: text, **({} if field == "refusal" else {"logprobs": []})}
    yield "response.content_part.done", {**at, "part": part}


def _empty(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item before anything of it has been sent."""
    blank: dict[str, Any] = {"content": []} if isinstance(item.get("content"), list) else {}
    blank |= {"summary": []} if "summary" in item else {}
    blank |= {"arguments": ""} if "arguments" in item else {}
    return {**item, **blank, **({"status": "in_progress"} if "status" in item else {})}


def _numbered(events: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[Event]:
    for number, (name, data) in enumerate(events):
        yield Event(name, {"type": name, "sequence_number": number, **data})
