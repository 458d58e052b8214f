"""A request, from Responses to Chat Completions (platform.md D4).

Invariant: a parameter that the caller did not set is not sent, and one that would change the answer but has no form over
there is an error, never dropped in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.errors import DataError
from services.models.convert.chat_messages import chat_messages

_SAME = ("model", "temperature", "top_p", "user", "service_tier", "store", "safety_identifier", "prompt_cache_key")
_RENAMED = {"max_output_tokens": "max_tokens"}
_IMPOSSIBLE = ("previous_response_id", "prompt", "conversation", "background")
"""They refer to what only a Responses server keeps."""


def chat_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """The Chat Completions body for a Responses "create" object, with messages as they were said. Raises `DataError`.

    `metadata` goes along only with `store`: without it OpenAI's chat API refuses it, and nobody would read it.
    """
    for name in _IMPOSSIBLE:
        if request.get(name):
            raise DataError(f"{name} cannot be represented in Chat Completions")
    body = {k: request[k] for k in _SAME if request.get(k) is not None}
    body |= {new: request[old] for old, new in _RENAMED.items() if request.get(old) is not None}
    if isinstance(request.get("top_logprobs"), int):
        body |= {"logprobs": True, "top_logprobs": request["top_logprobs"]}
    if request.get("store") and request.get("metadata"):
        body["metadata"] = request["metadata"]
    body |= _reasoning(request.get("reasoning"))
    body |= _text(request.get("text"))
    body |= _tools(request)
    body["messages"] = chat_messages(request.get("input"), request.get("instructions"))
    return body


def _reasoning(value: Any) -> dict[str, Any]:
    effort = value.get("effort") if isinstance(value, Mapping) else None
    return {} if effort is None else {"reasoning_effort": effort}


def _text(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {}
    verbosity = value.get("verbosity")
    body = {} if verbosity is None else {"verbosity": verbosity}
    wanted = value.get("format")
    kind = wanted.get("type") if isinstance(wanted, Mapping) else None
    if isinstance(wanted, Mapping) and kind == "json_schema":
        schema = {k: v for k, v in wanted.items() if k != "type" and v is not None}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif isinstance(wanted, Mapping) and kind not in {None, "text"}:
        body["response_format"] = dict(wanted)
    return body


def _tools(request: Mapping[str, Any]) -> dict[str, Any]:
    tools, choice = request.get("tools") or [], request.get("tool_choice")
    if not tools:
        if choice == "required":
            raise DataError("tool_choice is 'required', but the request offers no tools")
        return {}
    body: dict[str, Any] = {"tools": [_tool(t) for t in tools]}
    if choice is not None:
        body["tool_choice"] = _choice(choice)
    if request.get("parallel_tool_calls") is not None:
        body["parallel_tool_calls"] = request["parallel_tool_calls"]
    return body


def _tool(tool: Any) -> dict[str, Any]:
    kind = tool.get("type") if isinstance(tool, Mapping) else None
    if kind != "function" or not isinstance(tool, Mapping):
        raise DataError(f"a tool of type {str(kind)[:40]!r} cannot be represented in Chat Completions")
    function = {k: v for k, v in tool.items() if k not in {"type", "strict"} and v is not None}
    return {"type": "function", "function": function}


def _choice(choice: Any) -> Any:
    if isinstance(choice, str):
        return choice
    if isinstance(choice, Mapping) and choice.get("type") == "function" and isinstance(choice.get("name"), str):
        return {"type": "function", "function": {"name": choice["name"]}}
    kind = choice.get("type") if isinstance(choice, Mapping) else type(choice).__name__
    raise DataError(f"a tool_choice of type {str(kind)[:40]!r} cannot be represented in Chat Completions")
