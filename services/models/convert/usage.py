"""Token counts, between the words of the APIs (platform.md D5).

Invariant: an unknown count is null, never 0, and a provider's own total is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CACHED = ("cached_input_tokens", "cache_read_input_tokens")
"""Where providers besides OpenAI put what came out of their caches."""


def from_chat(usage: Any) -> dict[str, Any] | None:
    """The usage of a Responses object for that of a chat completion; None when there is none."""
    if not isinstance(usage, Mapping):
        return None
    details, more = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    cached = _first(details, ("cached_tokens",)), _first(usage, _CACHED)
    reasoning = _first(more, ("reasoning_tokens",)), _first(usage, ("reasoning_output_tokens",))
    return {
        "input_tokens": _first(usage, ("prompt_tokens",)),
        "input_tokens_details": {"cached_tokens": cached[0] if cached[0] is not None else cached[1]},
        "output_tokens": _first(usage, ("completion_tokens",)),
        "output_tokens_details": {"reasoning_tokens": reasoning[0] if reasoning[0] is not None else reasoning[1]},
        "total_tokens": _first(usage, ("total_tokens",)),
    }


def to_chat(usage: Any) -> dict[str, Any] | None:
    """The usage of a chat completion for that of a Responses object."""
    if not isinstance(usage, Mapping):
        return None
    return {
        "prompt_tokens": usage.get("input_tokens"),
        "completion_tokens": usage.get("output_tokens"),
        "total_tokens": usage.get("total_tokens"),
        "prompt_tokens_details": {"cached_tokens": _first(usage.get("input_tokens_details"), ("cached_tokens",))},
        "completion_tokens_details": {"reasoning_tokens": _first(usage.get("output_tokens_details"), ("reasoning_tokens",))},
    }


def _first(source: Any, names: tuple[str, ...]) -> int | None:
    if not isinstance(source, Mapping):
        return None
    found = (source.get(n) for n in names)
    return next((n for n in found if isinstance(n, int) and not isinstance(n, bool)), None)
