"""Chat Completions in front of Responses: D4 and D5 the other way round."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from schemas.errors import DataError
from services.gateway.surfaces.surface import EXTRA, Event, error_kind
from services.models.convert import usage
from services.models.convert.chat_messages import TOKEN_FIELDS
from services.models.convert.parts import assistant_text

_SAME = ("model", "temperature", "top_p", "top_logprobs", "user", "store", "metadata", "service_tier", "parallel_tool_calls")
_READ = {
    *_SAME, "messages", "tools", "tool_choice", "max_tokens", "max_completion_tokens", "reasoning_effort", "response_format",
    "n", "stream", "stream_options", "logprobs", "verbosity",
}  # fmt: skip
_REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}


class ChatSurface:
    """`POST /v1/chat/completions`."""

    name = "chat"
    path = "/v1/chat/completions"

    def request(self, body: Mapping[str, Any]) -> dict[str, Any]:
        messages = body.get("messages")
        if not isinstance(messages, list):
            raise DataError("messages must be a list")
        if body.get("n") not in {None, 1}:
            raise DataError("n must be 1: a rollout has one continuation")
        request: dict[str, Any] = {k: body[k] for k in _SAME if body.get(k) is not None}
        request["input"] = [item for m in messages for item in _items(m)]
        limit = body.get("max_completion_tokens") if body.get("max_completion_tokens") is not None else body.get("max_tokens")
        if limit is not None:
            request["max_output_tokens"] = limit
        if body.get("reasoning_effort") is not None:
            request["reasoning"] = {"effort": body["reasoning_effort"]}
        request |= _text(body) | _tools(body)
        extra = {k: v for k, v in body.items() if k not in _READ and v is not None}
        return {**request, EXTRA: extra} if extra else request

    def reply(self, response: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        choice = {"index": 0, "message": _message(response), "logprobs": None, "finish_reason": _finish(response)}
        return {**_frame(response, "chat.completion"), "choices": [choice], "usage": usage.to_chat(response.get("usage"))}

    def events(self, response: Mapping[str, Any], body: Mapping[str, Any]) -> Iterable[Event]:
        frame = _frame(response, "chat.completion.chunk")
        for delta in _deltas(_message(response)):
            yield Event(None, {**frame, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}]})
        yield Event(
            None, {**frame, "choices": [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": _finish(response)}]}
        )
        options = body.get("stream_options")
        if isinstance(options, Mapping) and options.get("include_usage"):
            yield Event(None, {**frame, "choices": [], "usage": usage.to_chat(response.get("usage"))})
        yield Event(None, "[DONE]")

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": {"message": message, "type": error_kind(status), "param": None, "code": None}}

    def failure(self, status: int, message: str, body: Mapping[str, Any]) -> Iterable[Event]:  # noqa: ARG002
        return [Event(None, self.error(status, message))]


def _items(message: Any) -> list[dict[str, Any]]:
    role = message.get("role") if isinstance(message, Mapping) else None
    if role == "assistant":
        return _assistant(message)
    if role in {"tool", "function"}:
        output = _joined(message.get("content"), role)
        return [
            {"type": "function_call_output", "call_id": message.get("tool_call_id") or message.get("name"), "output": output}
        ]
    if role not in {"user", "system", "developer"}:
        raise DataError(f"a message with the role {str(role)[:40]!r} cannot be represented in Responses")
    content = message.get("content")
    if isinstance(content, list):
        content = [_part(p) for p in content]
    elif not isinstance(content, str):
        raise DataError(f"a {role} message has no content")
    return [{"type": "message", "role": role, "content": content}]


def _assistant(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    thought = message.get("reasoning_content") or message.get("reasoning")
    items: list[dict[str, Any]] = []
    if isinstance(thought, str):
        items.append({"type": "reasoning", "id": "rs_given", "summary": [{"type": "summary_text", "text": thought}]})
    calls = message.get("tool_calls") or []
    text = assistant_text(message.get("content"))
    if text or not (calls or items):
        said = [{"type": "output_text", "text": text, "annotations": []}]
        items.append({"type": "message", "id": "msg_given", "role": "assistant", "status": "completed", "content": said})
    items += [_call(c) for c in calls]
    items[-1] |= {f: message[f] for f in TOKEN_FIELDS if message.get(f) is not None}
    return items


def _call(call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise DataError("a tool call has no function")
    return {
        "type": "function_call",
        "call_id": call.get("id"),
        "name": function.get("name"),
        "arguments": function.get("arguments"),
    }


def _part(part: Any) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, Mapping) else None
    match kind:
        case "text":
            return {"type": "input_text", "text": part.get("text")}
        case "image_url" if isinstance(part.get("image_url"), Mapping):
            image = part["image_url"]
            return {"type": "input_image", "image_url": image.get("url"), "detail": image.get("detail") or "auto"}
        case "video_url" if isinstance(part.get("video_url"), Mapping):
            return {"type": "input_video", "video_url": part["video_url"].get("url")}
        case "input_audio":
            return {"type": "input_audio", "input_audio": part.get("input_audio")}
    raise DataError(f"a content part {str(kind)[:40]!r} cannot be represented in Responses")


def _joined(content: Any, role: str) -> str:
    if isinstance(content, str):
        return content
    texts = [p.get("text") for p in content if isinstance(p, Mapping)] if isinstance(content, list) else [None]
    if not all(isinstance(t, str) for t in texts):
        raise DataError(f"a {role} message must have a text")
    return "".join(str(t) for t in texts)


def _text(body: Mapping[str, Any]) -> dict[str, Any]:
    wanted, verbosity = body.get("response_format"), body.get("verbosity")
    text: dict[str, Any] = {} if verbosity is None else {"verbosity": verbosity}
    if isinstance(wanted, Mapping):
        schema = wanted.get("json_schema")
        text["format"] = {"type": "json_schema", **schema} if isinstance(schema, Mapping) else dict(wanted)
    return {"text": text} if text else {}


def _tools(body: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if body.get("tools"):
        found["tools"] = [_tool(t) for t in body["tools"]]
    choice = body.get("tool_choice")
    if isinstance(choice, Mapping):
        function = choice.get("function")
        found["tool_choice"] = {"type": "function", "name": function.get("name") if isinstance(function, Mapping) else None}
    elif choice is not None:
        found["tool_choice"] = choice
    return found


def _tool(tool: Any) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool, Mapping) and tool.get("type") == "function" else None
    if not isinstance(function, Mapping):
        raise DataError("a tool that is no function cannot be represented in Responses")
    return {"type": "function", "strict": False, "parameters": {"type": "object", "properties": {}}, **function}


def _message(response: Mapping[str, Any]) -> dict[str, Any]:
    output = response["output"]
    thoughts = [s.get("text", "") for i in output if i.get("type") == "reasoning" for s in i.get("summary") or []]
    contents = [i.get("content") for i in output if i.get("type", "message") == "message"]
    parts = [p for c in contents for p in ([{"type": "output_text", "text": c}] if isinstance(c, str) else c or [])]
    text = "".join(p.get("text", "") for p in parts if p.get("type") == "output_text")
    refusal = "".join(p.get("refusal", "") for p in parts if p.get("type") == "refusal")
    calls = [_tool_call(i) for i in output if i.get("type") == "function_call"]
    message: dict[str, Any] = {
        "role": "assistant",
        "content": text or (None if calls or refusal else ""),
        "refusal": refusal or None,
    }
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    last = output[-1] if output else {}
    return {**message, **{f: last[f] for f in TOKEN_FIELDS if f in last}}


def _tool_call(item: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": item.get("name"), "arguments": item.get("arguments")}
    return {"id": item.get("call_id"), "type": "function", "function": function}


def _finish(response: Mapping[str, Any]) -> str:
    details = response.get("incomplete_details")
    if isinstance(details, Mapping):
        return _REASONS.get(str(details.get("reason")), "length")
    return "tool_calls" if any(i.get("type") == "function_call" for i in response["output"]) else "stop"


def _deltas(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for name in ("reasoning_content", "content", "refusal"):
        if message.get(name):
            yield {name: message[name]}
    for index, call in enumerate(message.get("tool_calls") or []):
        yield {"tool_calls": [{"index": index, **call}]}


def _frame(response: Mapping[str, Any], kind: str) -> dict[str, Any]:
    made = response.get("id") or "resp_unknown"
    return {
        "id": f"chatcmpl-{made}",
        "object": kind,
        "created": int(response.get("created_at") or 0),
        "model": response.get("model"),
    }
