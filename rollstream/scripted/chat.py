"""The script in the dialects of Chat Completions and text completions, with token ids as vLLM sends them.

Its tokenizer is a toy with the one property that matters for training: text does not give back the tokens it was generated
as. A prompt's token is a byte (0-255), a generated one the byte plus 256, so a history that is rendered anew has other ids.
Invariant: a prompt whose history carries token fields begins with exactly those (platform.md D9), here and at `/tokenize`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rollstream.scripted import script
from rollstream.scripted.fault import FaultKind
from rollstream.scripted.options import Options

GENERATED = 256
"""Added to the byte of a generated token."""

LOG_PROB = -0.25
"""Of every token: a binary fraction, so that it survives any way of writing it."""

_THOUGHT = "A hash decides."


def as_request(body: Mapping[str, Any]) -> dict[str, Any]:
    """What the script reads of a chat or text completion request, as a Responses request."""
    if "prompt" in body:
        return {"input": str(body["prompt"])}
    functions = [{**t["function"], "type": "function"} for t in body.get("tools") or []]
    choice = body.get("tool_choice", "auto")
    named = {"name": choice["function"]["name"]} if isinstance(choice, dict) else choice
    return {"input": [_item(m) for m in body["messages"]], "tools": functions, "tool_choice": named}


def prompt_ids(body: Mapping[str, Any]) -> list[int]:
    """The tokens of a request's prompt: of what comes after the last turn with token fields, behind these."""
    if "prompt" in body:
        return list(str(body["prompt"]).encode("utf-8", "replace"))
    messages, prefix = list(body["messages"]), []
    for i in range(len(messages) - 1, -1, -1):
        if messages[i].get("generation_token_ids") is not None:
            prefix = [*messages[i]["prompt_token_ids"], *messages[i]["generation_token_ids"]]
            messages = messages[i + 1 :]
            break
    rendered = "".join(f"<{m['role']}>{_said(m)}" for m in messages)
    return [*prefix, *f"{rendered}<assistant>".encode("utf-8", "replace")]


def completion(
    body: Mapping[str, Any], items: Sequence[Mapping[str, Any]], turn: script.Turn, options: Options, now: int
) -> dict[str, Any]:
    """The completion that says what `items` say."""
    calls = [_call(i) for i in items if i["type"] == "function_call"]
    text = "".join(p["text"] for i in items if i["type"] == "message" for p in i["content"])
    thought = _THOUGHT if options.reasoning else ""
    generated = list((thought + text + "".join(c["function"]["arguments"] for c in calls)).encode("utf-8", "replace"))
    limit = body.get("max_tokens")
    cut = isinstance(limit, int) and limit < len(generated)
    if cut:
        generated, calls, text = generated[:limit], [], bytes(generated[:limit]).decode("utf-8", "replace")
    ids = [GENERATED + b for b in generated]
    choice: dict[str, Any] = {"index": 0, "finish_reason": "length" if cut else "tool_calls" if calls else "stop"}
    told = {"id": f"cmpl-{turn.digest[12:28].hex()}", "created": now, "model": script.MODEL, "choices": [choice]}
    if "prompt" in body:
        choice |= {"text": text, "logprobs": _text_logprobs(body, ids)}
        told["object"] = "text_completion"
    else:
        choice |= {"message": _message(text, thought, calls, options), "logprobs": _logprobs(body, ids)}
        told["object"] = "chat.completion"
    prompt = prompt_ids(body)
    if options.token_fields:
        own = {"prompt_token_ids": prompt, "generation_token_ids": ids, "generation_log_probs": [LOG_PROB] * len(ids)}
        choice["message"] |= own
    if body.get("return_token_ids"):
        told["prompt_token_ids"], choice["token_ids"] = prompt, ids
    return {**told, "usage": _usage(len(prompt), len(ids))}


def with_fault(kind: FaultKind, body: dict[str, Any]) -> dict[str, Any]:
    """A completion with a fault of those that change a body."""
    match kind:
        case FaultKind.USAGE_NULL:
            return {**body, "usage": None}
        case FaultKind.INCOMPLETE:
            return {**body, "choices": [{**c, "finish_reason": "length"} for c in body["choices"]]}
        case FaultKind.NAN:
            return {**body, "created": float("nan")}
    return body


def _item(message: Mapping[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        return {"type": "function_call_output", "call_id": message.get("tool_call_id"), "output": message.get("content")}
    return {"role": message["role"], "content": message.get("content")}


def _said(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    text = content if isinstance(content, str) else "".join(str(p.get("text", p["type"])) for p in parts)
    return text + "".join(c["function"]["arguments"] for c in message.get("tool_calls") or [])


def _message(text: str, thought: str, calls: list[dict[str, Any]], options: Options) -> dict[str, Any]:
    inline = f"<think>{thought}</think>{text}" if options.reasoning == "inline" else text
    message: dict[str, Any] = {"role": "assistant", "content": inline or None}
    if options.reasoning == "separate":
        message["reasoning_content"] = thought
    return {**message, "tool_calls": calls} if calls else message


def _call(item: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": item["name"], "arguments": item["arguments"]}
    return {"id": item["call_id"], "type": "function", "function": function}


def _names(body: Mapping[str, Any], ids: Sequence[int]) -> list[str]:
    as_ids = body.get("return_tokens_as_token_ids")
    return [f"token_id:{i}" if as_ids else chr(i - GENERATED) for i in ids]


def _logprobs(body: Mapping[str, Any], ids: Sequence[int]) -> dict[str, Any] | None:
    if not body.get("logprobs"):
        return None
    return {"content": [{"token": n, "logprob": LOG_PROB, "bytes": None, "top_logprobs": []} for n in _names(body, ids)]}


def _text_logprobs(body: Mapping[str, Any], ids: Sequence[int]) -> dict[str, Any] | None:
    if body.get("logprobs") is None:
        return None
    return {"tokens": _names(body, ids), "token_logprobs": [LOG_PROB] * len(ids), "top_logprobs": None, "text_offset": []}


def _usage(prompt: int, generated: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
