"""Whether a model's endpoint answers, and takes the key (platform.md E5, Better).

Invariant: one small request to each base URL; what comes back is looked at for its status alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

TIMEOUT_S = 5.0
"""Of one try: an engine that lists its models does so at once."""

_POLL_S = 1.0
_REFUSED = {401: "refuses the key", 403: "forbids this key"}


class UnreachableError(Exception):
    """Nothing answers there (yet)."""


def check(model: Mapping[str, Any], timeout_s: float = TIMEOUT_S) -> str | None:
    """What is wrong with the endpoint of a model's settings; None when it answers. Raises `UnreachableError`."""
    import httpx

    for url in _urls(model):
        key = model.get("api_key")
        name = "api-key" if model.get("engine") == "azure" else "Authorization"
        headers = {name: str(key) if name == "api-key" else f"Bearer {key}"} if key else {}
        try:
            status = httpx.get(f"{url.rstrip('/')}/models", headers=headers, timeout=timeout_s).status_code
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, UnicodeError) as e:
            raise UnreachableError(f"{_plain(url)} does not answer: {type(e).__name__}: {_plain(str(e))}") from e
        if status in _REFUSED:
            return f"{_plain(url)} {_REFUSED[status]} (HTTP {status}): see api_key"
    return None


def wait(model: Mapping[str, Any], timeout_s: float, say: Callable[[str], None]) -> str | None:
    """As `check`, waiting until the endpoint answers, `timeout_s` at most (platform.md E3)."""
    end, said = time.monotonic() + timeout_s, False
    while True:
        try:
            return check(model)
        except UnreachableError as e:
            if time.monotonic() >= end:
                return str(e)
            if not said:
                say(f"{e}; waiting up to {timeout_s:g} s (model_endpoint_readiness_timeout_seconds)")
                said = True
            time.sleep(min(_POLL_S, max(0.0, end - time.monotonic())))


def _urls(model: Mapping[str, Any]) -> list[str]:
    url = model.get("url") or "scripted"
    found = [str(u) for u in url] if isinstance(url, list) else str(url).split(",")
    return [u.strip() for u in found if u.strip() and u.strip() != "scripted"]


def _plain(text: str) -> str:
    from rollstream.settings.mask import mask_urls

    return mask_urls(text)
