"""Content parts of a message, from Responses to Chat Completions (platform.md D4).

Invariant: a part that has no form over there is a `DataError` that names its type and never shows it: it may hold an image,
or the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from schemas.errors import DataError

_TEXTS = frozenset({"output_text", "input_text", "text"})


def chat_content(content: Any, role: str) -> Any:
    """The content of a user, system or developer message: a string stays one, a list becomes a list of chat parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return [_chat_part(p) for p in content]
    raise DataError(f"a {role} message has no content that could be sent: it is a JSON {type(content).__name__}")


def assistant_text(content: Any) -> str:
    """The texts of an assistant message, a refusal's among them, with nothing between."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, Sequence):
        raise DataError(f"an assistant message has a JSON {type(content).__name__} as its content")
    return "".join(_text(p) for p in content)


def plain_text(content: Any) -> str:
    """The text of a chat message's content; a `DataError` where it is more than text."""
    if isinstance(content, str):
        return content
    kinds = {p["type"] for p in content}
    if kinds - {"text"}:
        raise DataError(f"a {min(kinds - {'text'})} part cannot be part of a system message")
    return "".join(p["text"] for p in content)


def tool_output(output: Any) -> str:
    """The output of a function call as text."""
    if isinstance(output, str):
        return output
    kinds = {kind_of(p) for p in output} if isinstance(output, Sequence) else {type(output).__name__}
    if not isinstance(output, Sequence) or kinds - {"input_text"}:
        raise DataError(f"a function_call_output with {min(kinds - {'input_text'})} cannot be represented in Chat Completions")
    return "".join(str(p.get("text", "")) for p in output)


def kind_of(value: Any) -> str:
    """The type that an item or part says it has, for a message."""
    kind = value.get("type") if isinstance(value, Mapping) else None
    return kind if isinstance(kind, str) else "without a type"


def _text(part: Any) -> str:
    kind = kind_of(part)
    text = part.get("refusal") if kind == "refusal" else part.get("text") if kind in _TEXTS else None
    if not isinstance(text, str):
        raise DataError(f"a part {kind!r} of an assistant message cannot be represented in Chat Completions")
    return text


def _chat_part(part: Any) -> dict[str, Any]:
    match kind := kind_of(part):
        case "input_text" | "text" if isinstance(part.get("text"), str):
            return {"type": "text", "text": part["text"]}
        case "input_image":
            return _image(part)
        case "input_audio" if isinstance(part.get("input_audio"), Mapping):
            return {"type": "input_audio", "input_audio": part["input_audio"]}
        case "input_video":
            return _video(part)
        case "image_url" | "video_url" | "audio_url" if isinstance(part.get(kind), Mapping):
            return dict(part)
    raise DataError(f"a content part {kind!r} cannot be represented in Chat Completions")


def _image(part: Mapping[str, Any]) -> dict[str, Any]:
    url = part.get("image_url")
    if not isinstance(url, str) or not url:
        raise DataError("an input_image without an image_url cannot be represented in Chat Completions")
    return {"type": "image_url", "image_url": {"url": url, "detail": part.get("detail") or "auto"}}


def _video(part: Mapping[str, Any]) -> dict[str, Any]:
    found = [part[name] for name in ("video_url", "video") if part.get(name)]
    if len(found) != 1 or not isinstance(found[0], str):
        raise DataError("an input_video must have exactly one of video_url and video, and it must not be empty")
    return {"type": "video_url", "video_url": {"url": found[0]}}
