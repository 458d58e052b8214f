"""A completion, from Chat Completions to Responses (platform.md D5).

Invariant: `output` is never empty, keeps the order reasoning, message, calls, and holds every word the engine sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas import jsontext
from services.models.convert import frame, think, usage
from services.models.wire import UnusableReplyError


class BadCompletionError(Exception):
    """The body is no chat completion; another try may bring one."""


def choice_of(body: Any) -> Mapping[str, Any]:
    """The one choice of a completion, chat or text. Raises `BadCompletionError`."""
    if not isinstance(body, Mapping):
        raise BadCompletionError(f"the reply is a JSON {type(body).__name__}, not an object")
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        what = f"object {body['object']!r}" if isinstance(body.get("object"), str) else "reply"
        raise BadCompletionError(f"the {what} has no choices; is this the right API?")
    if len(choices) > 1:
        raise BadCompletionError(f"the reply has {len(choices)} choices; n must be 1")
    return choices[0]


def message_of(choice: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message of a chat choice. Raises `BadCompletionError`."""
    message = choice.get("message")
    if not isinstance(message, Mapping):
        raise BadCompletionError("choices[0] has no message")
    return message


def output_items(message: Mapping[str, Any], mark: str, *, parses_reasoning: bool, whole: bool) -> list[dict[str, Any]]:
    """The output items of a chat message; `whole` is false when the engine stopped before the end of the answer.

    Raises `BadCompletionError`, and `UnusableReplyError` when the engine parses reasoning and the setting says it does not.
    """
    text = _text(message.get("content"))
    said = _reasoning(message)
    if said and not parses_reasoning:
        raise UnusableReplyError("the engine separates reasoning from its answers: set uses_reasoning_parser to true")
    thoughts, rest = think.split(text) if parses_reasoning else ([], text)
    thoughts = [said, *thoughts] if said else thoughts
    calls = _calls(message.get("tool_calls"), mark)
    refusal = message.get("refusal") if isinstance(message.get("refusal"), str) else None
    items: list[dict[str, Any]] = []
    if thoughts:
        summary = [{"type": "summary_text", "text": t} for t in thoughts]
        items.append({"type": "reasoning", "id": f"rs_{mark}", "summary": summary})
    if rest or refusal or not (thoughts or calls):
        items.append(frame.message(rest, mark, refusal=refusal, whole=whole))
    return items + calls


def to_response(
    body: Mapping[str, Any], request: Mapping[str, Any], output: list[dict[str, Any]], mark: str, now: int
) -> dict[str, Any]:
    """The Responses object for a completion whose items are `output`; `now` is Unix seconds."""
    created = body.get("created")
    return frame.response(
        request,
        output,
        mark=mark,
        created_at=created if isinstance(created, int | float) else now,
        model=body.get("model") or request.get("model"),
        finish=choice_of(body).get("finish_reason"),
        usage=usage.from_chat(body.get("usage")),
    )


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    texts = [p.get("text") for p in content if isinstance(p, Mapping)] if isinstance(content, list) else [None]
    if not all(isinstance(t, str) for t in texts):
        raise BadCompletionError("the message's content is neither a text nor a list of texts")
    return "".join(str(t) for t in texts)


def _reasoning(message: Mapping[str, Any]) -> str:
    for name in ("reasoning_content", "reasoning"):
        if isinstance(message.get(name), str) and message[name]:
            return str(message[name])
    return ""


def _calls(calls: Any, mark: str) -> list[dict[str, Any]]:
    if calls is None:
        return []
    if not isinstance(calls, list):
        raise BadCompletionError("the message's tool_calls are no list")
    return [_call(c, f"call_{mark}_{i}") for i, c in enumerate(calls)]


def _call(call: Any, fallback: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise BadCompletionError("a tool call has no function with a name")
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else jsontext.dumps({} if arguments is None else arguments).decode()
    call_id = call.get("id") if isinstance(call.get("id"), str) and call["id"] else fallback
    return {
        "type": "function_call",
        "id": call_id,
        "call_id": call_id,
        "name": function["name"],
        "arguments": text,
        "status": "completed",
    }
