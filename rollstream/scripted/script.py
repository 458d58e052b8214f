"""What the scripted server answers: a pure function of the request.

It looks for lettered options and boxes one of them, chosen by a hash; it does not know the answer. Asked for a verdict, it
gives one as blindly (`verdict`). Offered tools, it calls them in turn, with arguments that fit their schemas, and closes with
a short message. Invariant: the same request
and options always give the same output.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from rollstream.scripted.arguments import Source, arguments
from rollstream.scripted.options import Options
from rollstream.scripted.verdict import verdict
from schemas import jsontext

MODEL = "scripted"

_OPTION = re.compile(r"^[ \t]*(?:[-*][ \t]+)?\(?([A-Z])[):.][ \t]", re.MULTILINE)
_INTEGER = re.compile(r"-?[0-9]{1,15}")
_MAX_NUMBERS = 64
_MIN_OPTIONS = 2
_FILLER = "The scripted server pads its reply. "
_BYTES_PER_TOKEN = 4
"""A usual ratio for English text; the script has no tokenizer and says so by being round."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A request as the script reads it. `tool_turns` counts the turns with calls that the conversation already has."""

    text: str
    tools: tuple[Mapping[str, Any], ...]
    numbers: tuple[int, ...]
    tool_turns: int
    digest: bytes


def digest(request: Mapping[str, Any], key: str, options: Options) -> bytes:
    """32 bytes that decide every choice: hash of the conversation, the seed and, if wanted, the idempotency key."""
    h = hashlib.blake2b(jsontext.dumps(_input(request)), digest_size=32, salt=(options.seed % 2**64).to_bytes(8))
    if options.vary_by_key:
        h.update(key.encode("utf-8", "replace"))
    return h.digest()


def read(request: Mapping[str, Any], digest: bytes) -> Turn:
    """The parts of a request that the script reacts to."""
    items = _input(request)
    if isinstance(items, str):
        return Turn(items, _tools(request), (), 0, digest)
    objects = [i for i in items if isinstance(i, dict)] if isinstance(items, list) else []
    users = [_text(i.get("content")) for i in objects if i.get("role") == "user"]
    kinds = [i.get("type") for i in objects]
    if "function_call_output" not in kinds:
        return Turn(users[-1] if users else "", _tools(request), (), 0, digest)
    outputs = [_text(i.get("output")) for i in objects if i.get("type") == "function_call_output"]
    numbers = tuple(int(n) for o in outputs for n in _INTEGER.findall(o))[:_MAX_NUMBERS]
    turns = sum(k == "function_call_output" and (not i or kinds[i - 1] != k) for i, k in enumerate(kinds))
    return Turn(users[-1] if users else "", _tools(request), numbers, turns, digest)


def output(turn: Turn, options: Options) -> list[dict[str, Any]]:
    """The output items of the reply."""
    wanted = len(turn.tools) if options.tool_turns is None else options.tool_turns
    if turn.tools and turn.tool_turns < wanted:
        said = [message(_pad("", options.turn_bytes), turn)] if options.turn_bytes else []
        return [*said, call(turn)]
    return [message(_pad(_final_text(turn), options.pad_bytes), turn)]


def call(turn: Turn, number: int = 0) -> dict[str, Any]:
    """A call of the tool whose turn it is. `number` tells the calls of one turn apart."""
    tool = turn.tools[(turn.tool_turns + number) % len(turn.tools)]
    made = arguments(tool.get("parameters"), Source(turn.text, turn.numbers, turn.digest))
    mark = f"{turn.digest[:8].hex()}{turn.tool_turns}_{number}"
    return {
        "type": "function_call",
        "id": f"fc_{mark}",
        "call_id": f"call_{mark}",
        "name": tool.get("name"),
        "arguments": orjson.dumps(made).decode(),
        "status": "completed",
    }


def message(text: str, turn: Turn) -> dict[str, Any]:
    """An assistant message."""
    return {
        "type": "message",
        "id": f"msg_{turn.digest[:12].hex()}",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def response(
    request: Mapping[str, Any], items: list[dict[str, Any]], turn: Turn, sizes: tuple[int, int], now: int
) -> dict[str, Any]:
    """The Responses object around `items`. `sizes`: bytes of the request and of the items; `now`: Unix seconds."""
    tokens_in, tokens_out = (max(1, n // _BYTES_PER_TOKEN) for n in sizes)
    return {
        "id": f"resp_{turn.digest[12:28].hex()}",
        "object": "response",
        "created_at": now,
        "model": MODEL,
        "status": "completed",
        "output": items,
        "error": None,
        "incomplete_details": None,
        "instructions": request.get("instructions"),
        "metadata": request.get("metadata") or {},
        "parallel_tool_calls": request.get("parallel_tool_calls", True),
        "temperature": request.get("temperature"),
        "tool_choice": request.get("tool_choice", "auto"),
        "tools": request.get("tools") or [],
        "top_p": request.get("top_p"),
        "usage": {
            "input_tokens": tokens_in,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": tokens_out,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": tokens_in + tokens_out,
        },
    }


def _input(request: Mapping[str, Any]) -> Any:
    return request.get("input", "")


def _tools(request: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    offered = request.get("tools")
    choice = request.get("tool_choice")
    if not offered or not isinstance(offered, list) or choice == "none":
        return ()
    tools = tuple(t for t in offered if isinstance(t, dict) and t.get("type") == "function")
    named = choice.get("name") if isinstance(choice, dict) else None
    return tuple(t for t in tools if t.get("name") == named) or tools


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    return "\n".join(p["text"] for p in parts if isinstance(p, dict) and isinstance(p.get("text"), str))


def _final_text(turn: Turn) -> str:
    if turn.tool_turns:
        return "The tools have answered; that is all this script does."
    judged = verdict(turn.text, turn.digest)
    if judged is not None:
        return judged
    letters = sorted(set(_OPTION.findall(turn.text)))
    if len(letters) < _MIN_OPTIONS:
        return "This reply comes from a script, not from a model."
    letter = letters[turn.digest[12] % len(letters)]
    if "answer:" in turn.text.lower() and "\\boxed" not in turn.text:
        return f"Picked by a hash, not by thought.\nAnswer: {letter}"
    return f"Picked by a hash, not by thought: \\boxed{{{letter}}}"


def _pad(text: str, size: int) -> str:
    if not size:
        return text
    filler = (_FILLER * (size // len(_FILLER) + 1))[:size]
    return f"{filler}\n{text}" if text else filler
