"""Token counts of several model calls as one (platform.md A5).

Invariant: an unknown count stays unknown. A null is never turned into 0, so a sum that includes an unknown part is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_COUNTS = ("input_tokens", "output_tokens", "total_tokens")
_DETAILS = (("input_tokens_details", "cached_tokens"), ("output_tokens_details", "reasoning_tokens"))


def add_usage(total: Mapping[str, Any] | None, usage: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The sum of two usages; a missing one (None or empty) leaves the other as it is, two missing ones are None."""
    if not total or not usage:
        present = total or usage
        return dict(present) if present else None
    summed: dict[str, Any] = {name: _sum(total.get(name), usage.get(name)) for name in _COUNTS}
    for group, name in _DETAILS:
        summed[group] = {name: _sum(_detail(total, group, name), _detail(usage, group, name))}
    return summed


def _detail(usage: Mapping[str, Any], group: str, name: str) -> Any:
    details = usage.get(group)
    return details.get(name) if isinstance(details, Mapping) else None


def _sum(a: Any, b: Any) -> int | float | None:
    return a + b if isinstance(a, int | float) and isinstance(b, int | float) else None
