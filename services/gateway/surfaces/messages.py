"""Anthropic Messages in front of Responses (platform.md D2, D5).

Format: Anthropic's Messages API, version 2023-06-01. Invariant: cache reads and writes are counted in a Responses object's
input tokens and beside them in a message's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from schemas import jsontext
from schemas.errors import DataError
from services.gateway.surfaces.surface import EXTRA, Event, error_kind

_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_READ = {
    "model", "messages", "system", "tools", "tool_choice", "max_tokens", "temperature", "top_p", "metadata", "stream",
    "stop_sequences", "thinking", "service_tier", "context_management", "container", "mcp_servers", "output_config", "betas",
}  # fmt: skip
"""What is read, and what only Anthropic's own servers can do: harnesses send that whatever the model is."""


class MessagesSurface:
    """`POST /v1/messages`."""

    name = "messages"
    path = "/v1/messages"

    def request(self, body: Mapping[str, Any]) -> dict[str, Any]:
        messages = body.get("messages")
        if not isinstance(messages, list):
            raise DataError("messages must be a list")
        request: dict[str, Any] = {k: body[k] for k in ("model", "temperature", "top_p") if body.get(k) is not None}
        request["input"] = [item for m in messages for item in _items(m)]
        if body.get("system"):
            request["instructions"] = _system(body["system"])
        if body.get("max_tokens") is not None:
            request["max_output_tokens"] = body["max_tokens"]
        if isinstance(body.get("metadata"), Mapping) and body["metadata"].get("user_id"):
            request["user"] = body["metadata"]["user_id"]
        extra = {k: v for k, v in body.items() if k not in _READ and v is not None}
        if body.get("stop_sequences"):
            extra["stop"] = body["stop_sequences"]
        return {**request, **_tools(body), **({EXTRA: extra} if extra else {})}

    def reply(self, response: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **_frame(response, body),
            "content": _blocks(response),
            "stop_reason": _stop(response),
            "usage": _usage(response),
        }

    def events(self, response: Mapping[str, Any], body: Mapping[str, Any]) -> Iterable[Event]:
        return (Event(name, {"type": name, **data}) for name, data in self._events(response, body))

    def _events(self, response: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        counted = _usage(response)
        begun = {**_frame(response, body), "content": [], "stop_reason": None, "usage": {**counted, "output_tokens": 0}}
        yield "message_start", {"message": begun}
        for index, block in enumerate(_blocks(response)):
            empty, delta = _pieces(block)
            yield "content_block_start", {"index": index, "content_block": empty}
            yield "content_block_delta", {"index": index, "delta": delta}
            yield "content_block_stop", {"index": index}
        ended = {"stop_reason": _stop(response), "stop_sequence": None}
        yield "message_delta", {"delta": ended, "usage": {"output_tokens": counted["output_tokens"]}}
        yield "message_stop", {}

    def error(self, status: int, message: str) -> dict[str, Any]:
        kind = "overloaded_error" if status == 503 else error_kind(status)  # noqa: PLR2004
        return {"type": "error", "error": {"type": kind, "message": message}}

    def failure(self, status: int, message: str, body: Mapping[str, Any]) -> Iterable[Event]:  # noqa: ARG002
        return [Event("error", self.error(status, message))]


def _items(message: Any) -> list[dict[str, Any]]:
    role = message.get("role") if isinstance(message, Mapping) else None
    if role not in {"user", "assistant"}:
        raise DataError(f"a message with the role {str(role)[:40]!r}: it must be user or assistant")
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list) or not all(isinstance(b, Mapping) for b in blocks):
        raise DataError(f"a {role} message has no content")
    return _said(blocks) if role == "assistant" else _given(blocks)


def _said(blocks: list[Any]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for block in blocks:
        match block.get("type"):
            case "text":
                part: dict[str, Any] = {"type": "output_text", "text": block.get("text") or "", "annotations": []}
                items.append(
                    {"type": "message", "id": "msg_given", "role": "assistant", "status": "completed", "content": [part]}
                )
            case "thinking":
                summary = [{"type": "summary_text", "text": block.get("thinking") or ""}]
                items.append({"type": "reasoning", "id": "rs_given", "summary": summary})
            case "tool_use":
                arguments = jsontext.dumps(block.get("input") or {}).decode()
                items.append(
                    {"type": "function_call", "call_id": block.get("id"), "name": block.get("name"), "arguments": arguments}
                )
            case "redacted_thinking":
                continue
            case kind:
                raise DataError(f"an assistant's block {str(kind)[:40]!r} cannot be represented in Responses")
    return items


def _given(blocks: list[Any]) -> list[dict[str, Any]]:
    """Results of tools first, as Anthropic wants them too, then what the user says."""
    results = [_result(b) for b in blocks if b.get("type") == "tool_result"]
    parts = [_part(b) for b in blocks if b.get("type") != "tool_result"]
    return [*results, {"type": "message", "role": "user", "content": parts}] if parts or not results else results


def _part(block: Mapping[str, Any]) -> dict[str, Any]:
    kind, source = block.get("type"), block.get("source")
    if kind == "text":
        return {"type": "input_text", "text": block.get("text") or ""}
    if kind == "image" and isinstance(source, Mapping):
        inline = f"data:{source.get('media_type')};base64,{source.get('data')}"
        return {"type": "input_image", "image_url": source.get("url") or inline, "detail": "auto"}
    raise DataError(f"a user's block {str(kind)[:40]!r} cannot be represented in Responses")


def _result(block: Mapping[str, Any]) -> dict[str, Any]:
    content = block.get("content")
    if isinstance(content, list):
        parts = [_part(b) for b in content if isinstance(b, Mapping)]
        only_text = all(p["type"] == "input_text" for p in parts)
        output: Any = "".join(p["text"] for p in parts) if only_text else parts
    else:
        output = content if isinstance(content, str) else ""
    return {"type": "function_call_output", "call_id": block.get("tool_use_id"), "output": output}


def _system(system: Any) -> str:
    if isinstance(system, str):
        return system
    texts = [b.get("text") for b in system if isinstance(b, Mapping)] if isinstance(system, list) else [None]
    if not all(isinstance(t, str) for t in texts):
        raise DataError("system must be a text or a list of text blocks")
    return "\n\n".join(str(t) for t in texts)


def _tools(body: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if body.get("tools"):
        found["tools"] = [_tool(t) for t in body["tools"]]
    choice = body.get("tool_choice")
    if isinstance(choice, Mapping):
        kind = choice.get("type")
        found["tool_choice"] = (
            {"type": "function", "name": choice.get("name")} if kind == "tool" else _CHOICES.get(str(kind), "auto")
        )
        if choice.get("disable_parallel_tool_use"):
            found["parallel_tool_calls"] = False
    return found


def _tool(tool: Any) -> dict[str, Any]:
    if (
        not isinstance(tool, Mapping)
        or tool.get("type", "custom") != "custom"
        or not isinstance(tool.get("input_schema"), Mapping)
    ):
        kind = tool.get("type") if isinstance(tool, Mapping) else type(tool).__name__
        raise DataError(f"a tool of type {str(kind)[:40]!r} without an input_schema cannot be represented in Responses")
    parameters = tool["input_schema"]
    return {
        "type": "function",
        "name": tool.get("name"),
        "description": tool.get("description"),
        "parameters": parameters,
        "strict": False,
    }


def _blocks(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for item in response["output"]:
        kind = item.get("type", "message")
        if kind == "reasoning":
            texts = [s.get("text", "") for s in item.get("summary") or []]
            blocks.append({"type": "thinking", "thinking": "\n".join(texts), "signature": ""})
        elif kind == "function_call":
            used = {"id": item.get("call_id"), "name": item.get("name"), "input": _arguments(item.get("arguments"))}
            blocks.append({"type": "tool_use", **used})
        elif kind == "message":
            content = item.get("content")
            parts = [{"text": content}] if isinstance(content, str) else content or []
            text = "".join(p.get("text") or p.get("refusal") or "" for p in parts)
            blocks += [{"type": "text", "text": text}] if text else []
    return blocks


def _arguments(text: Any) -> Any:
    """A call's arguments as an object; what is none is handed on under one key, for the harness to complain about."""
    try:
        value = jsontext.loads_lenient(text or "{}")
    except (ValueError, TypeError):
        value = None
    return value if isinstance(value, dict) else {"_invalid_arguments": text}


def _pieces(block: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A block before anything of it was sent, and all of it as one delta."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        case "thinking":
            return {**block, "thinking": ""}, {"type": "thinking_delta", "thinking": block["thinking"]}
    return {**block, "input": {}}, {"type": "input_json_delta", "partial_json": jsontext.dumps(block["input"]).decode()}


def _stop(response: Mapping[str, Any]) -> str:
    details = response.get("incomplete_details")
    if isinstance(details, Mapping):
        return "refusal" if details.get("reason") == "content_filter" else "max_tokens"
    return "tool_use" if any(i.get("type") == "function_call" for i in response["output"]) else "end_turn"


def _usage(response: Mapping[str, Any]) -> dict[str, Any]:
    counted = response.get("usage")
    counted = counted if isinstance(counted, Mapping) else {}
    details = counted.get("input_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    whole = counted.get("input_tokens")
    return {
        "input_tokens": whole - (cached or 0) if isinstance(whole, int) else None,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": None,
        "output_tokens": counted.get("output_tokens"),
    }


def _frame(response: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    made = response.get("id") or "unknown"
    model = response.get("model") or body.get("model")
    return {"id": f"msg_{made}", "type": "message", "role": "assistant", "model": model, "stop_sequence": None}
