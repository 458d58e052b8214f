"""Token usage summed over the calls of a rollout (platform.md A5, agents.md "Usage sum").

Invariant: an unknown count stays null and makes the sum null; null is never turned into 0. Calls without usage are
left out; without any, the sum is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TOTALS = ("input_tokens", "output_tokens", "total_tokens")
_DETAILS = (("input_tokens_details", "cached_tokens"), ("output_tokens_details", "reasoning_tokens"))

Usage = Mapping[str, Any]


def add(total: Usage | None, usage: Usage | None) -> Usage | None:
    """`total` and the usage of one more call."""
    if not usage:
        return total
    if not total:
        return usage
    summed: dict[str, Any] = {name: _sum(total.get(name), usage.get(name)) for name in _TOTALS}
    for group, name in _DETAILS:
        summed[group] = {name: _sum(_detail(total, group, name), _detail(usage, group, name))}
    return summed


def _detail(usage: Usage, group: str, name: str) -> Any:
    details = usage.get(group)
    return details.get(name) if isinstance(details, Mapping) else None


def _sum(a: Any, b: Any) -> Any:
    return None if a is None or b is None else a + b
