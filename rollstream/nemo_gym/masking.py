"""Secrets out of a configuration that is shown.

Invariant: what is masked is every value under the name of a secret, every value of a header, and every text in which one of
these stands again, wherever an interpolation has put it.
"""

from __future__ import annotations

from typing import Any

from rollstream.settings.mask import MASK, mask_urls, masked

_SHORTEST = 6
"""A shorter secret is not looked for in other values: it would take letters out of innocent words."""


def without_secrets(values: Any) -> Any:
    """A copy of the tree that may be shown."""
    return _shown(values, "", sorted(_secrets(values, ""), key=len, reverse=True))


def is_secret(key: str, value: Any) -> bool:
    """Whether a value under `key` is one by its name; a count or a switch is none."""
    return isinstance(value, str) and value != "" and masked(key, value) == MASK


def _secrets(value: Any, key: str) -> set[str]:
    if isinstance(value, dict):
        inside = "password" if key.lower().endswith("headers") else ""
        return {s for k, v in value.items() for s in _secrets(v, inside or str(k))}
    if isinstance(value, list):
        return {s for v in value for s in _secrets(v, key)}
    return {value} if is_secret(key, value) and len(value) >= _SHORTEST else set()


def _shown(value: Any, key: str, secrets: list[str]) -> Any:
    if isinstance(value, dict):
        headers = key.lower().endswith("headers")
        return {k: _shown(v, "password" if headers else str(k), secrets) for k, v in value.items()}
    if isinstance(value, list):
        return [_shown(v, key, secrets) for v in value]
    if is_secret(key, value):
        return MASK
    return _without(value, secrets) if isinstance(value, str) else value


def _without(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, MASK)
    return mask_urls(text)
